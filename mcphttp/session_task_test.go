package mcphttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A taskCore serves tasks/result of one task, which ends when the test says so.
type taskCore struct {
	*testCore
	progress chan struct{} // a value sends a notification of progress
	ended    chan error    // receives the cause if the request ends before the task
}

func (c *taskCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method != "tasks/result" {
		return c.testCore.ServeMCP(ctx, req)
	}
	for {
		select {
		case <-c.progress:
			_ = req.Notify(ctx, "notifications/progress", []byte(`{"progressToken":1,"progress":1}`))
		case <-c.proceed:
			return mcp.RawResult(`{"resultType":"complete","content":[]}`), nil
		case <-ctx.Done():
			c.ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	}
}

// checkWaiting checks that the request has not ended.
func (c *taskCore) checkWaiting(t *testing.T, when string) {
	t.Helper()
	select {
	case err := <-c.ended:
		t.Fatalf("%s: the request ended with %v", when, err)
	default:
	}
}

// checkDisconnected checks that the request has ended because the client has disconnected.
func (c *taskCore) checkDisconnected(t *testing.T) {
	t.Helper()
	select {
	case err := <-c.ended:
		if !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("the request ended with %v, want ErrDisconnected", err)
		}
	default:
		t.Error("the request has not ended")
		c.proceed <- struct{}{}
	}
}

// startTask starts a server with a taskCore and opens a session.
func startTask(t *testing.T) (*taskCore, *testSession) {
	core := &taskCore{newTestCore(), make(chan struct{}), make(chan error, 1)}
	return core, start(t, core, nil).initialize(november2025)
}

// openResult posts tasks/result and reads the stream up to a notification of progress, whose id it
// returns.
func (c *taskCore) openResult(ctx context.Context, s *testSession) (lastEvent string) {
	go func() { c.progress <- struct{}{} }()
	events := s.stream(s.post(ctx, taskResultBody))
	events.next()
	return events.next().ID
}

// resumeResult resumes the stream and reads the result of the task.
func (s *testSession) resumeResult(lastEvent string) {
	s.t.Helper()
	events := s.stream(s.get(s.t.Context(), "Last-Event-ID: "+lastEvent))
	if e := events.next(); !strings.Contains(string(e.Data), `"result":{"content":[]}`) {
		s.t.Errorf("got %s, want the result of the task", e.Data)
	}
	events.expectEnd()
}

const taskResultBody = `{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t"}}`

// A client that waits for a task keeps its session. The session must end if the client disconnects
// and does not resume.
func TestTaskResult_EndsIfItsClientDoesNotResume(t *testing.T) {
	for _, withProgress := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			core, s := startTask(t)
			ctx, disconnect := context.WithCancel(t.Context())
			go func() {
				if resp, err := s.client.Do(s.post(ctx, taskResultBody)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			synctest.Wait()
			if withProgress {
				core.progress <- struct{}{}
			}
			time.Sleep(5 * time.Hour)
			core.checkWaiting(t, "5 hours with a connection")
			disconnect()
			time.Sleep(9 * time.Minute)
			core.checkWaiting(t, "9 minutes without a connection")
			time.Sleep(2 * time.Minute)
			core.checkDisconnected(t)
			time.Sleep(40 * time.Minute)
			if got := s.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); got.status != http.StatusNotFound {
				t.Errorf("session after the request: status %d, want 404", got.status)
			}
		})
	}
}

func TestTaskResult_WaitsForAClientThatResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, s := startTask(t)
		ctx, disconnect := context.WithCancel(t.Context())
		last := core.openResult(ctx, s)
		disconnect()
		time.Sleep(8 * time.Minute)
		time.AfterFunc(5*time.Hour, func() { core.proceed <- struct{}{} })
		s.resumeResult(last)
		core.checkWaiting(t, "after the result")
	})
}

// The task may end shortly after its client has disconnected. The connection is closed then, and
// the result is stored for a client that resumes.
func TestTaskResult_IsStoredForADisconnectedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, s := startTask(t)
		ctx, disconnect := context.WithCancel(t.Context())
		last := core.openResult(ctx, s)
		disconnect()
		synctest.Wait()
		core.proceed <- struct{}{}
		time.Sleep(time.Minute) // several keep-alive periods
		s.resumeResult(last)
	})
}

// If the client has disconnected before the first event, nothing is written to the response. A
// proxy that accepts every write would look like a connected client.
func TestTaskResult_NothingIsWrittenAfterTheClientHasDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, s := startTask(t)
		ctx, disconnect := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.handler.ServeHTTP(w, s.post(ctx, taskResultBody))
		}()
		synctest.Wait()
		disconnect()
		synctest.Wait()
		core.progress <- struct{}{}
		time.Sleep(11 * time.Minute)
		core.checkDisconnected(t)
		<-served
		time.Sleep(time.Minute)
		if w.Body.Len() > 0 {
			t.Errorf("%q was written after the client had disconnected", w.Body)
		}
	})
}
