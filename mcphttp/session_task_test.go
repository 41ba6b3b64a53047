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

// A taskCore has one task. tasks/result waits for it; it tells of progress when the test says so.
type taskCore struct {
	*testCore
	progress chan struct{} // progress
	ended    chan error    // why waiting has ended
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

const taskResultBody = `{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t"}}`

// A client that waits for a task keeps its session, which must end if the client disconnects and
// does not resume.
func TestAClientThatStaysAwayWaitsForNoTask(t *testing.T) {
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			core := &taskCore{newTestCore(), make(chan struct{}), make(chan error, 1)}
			f := start(t, core, nil)
			s := f.initialize(november2025)
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				if resp, err := f.client.Do(s.post(ctx, taskResultBody)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			synctest.Wait()
			if told {
				core.progress <- struct{}{}
			}
			time.Sleep(5 * time.Hour) // it is there
			if len(core.ended) > 0 {
				t.Fatalf("the waiting ended: %v", <-core.ended)
			}
			leave()
			time.Sleep(9 * time.Minute) // it may come back
			if len(core.ended) > 0 {
				t.Fatalf("the waiting ended at once: %v", <-core.ended)
			}
			time.Sleep(2 * time.Minute)
			select {
			case err := <-core.ended:
				if !errors.Is(err, mcp.ErrDisconnected) {
					t.Errorf("the waiting ended with %v", err)
				}
			default:
				t.Fatal("it is still waited")
			}
			time.Sleep(40 * time.Minute)
			if got := s.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); got.status != http.StatusNotFound {
				t.Errorf("the session is still there: %d", got.status)
			}
		})
	}
}

func TestAClientThatComesBackGetsTheResultOfItsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &taskCore{newTestCore(), make(chan struct{}), make(chan error, 1)}
		f := start(t, core, nil)
		s := f.initialize(november2025)
		ctx, leave := context.WithCancel(t.Context())
		go func() { core.progress <- struct{}{} }()
		events := f.stream(s.post(ctx, taskResultBody))
		events.next()
		last := events.next()
		leave()
		time.Sleep(8 * time.Minute)
		events = f.stream(s.get(t.Context(), "Last-Event-ID: "+last.ID))
		time.AfterFunc(5*time.Hour, func() { core.proceed <- struct{}{} })
		if e := events.next(); !strings.Contains(string(e.Data), `"result":{"content":[]}`) {
			t.Errorf("got %s", e.Data)
		}
		events.expectEnd()
		if len(core.ended) > 0 {
			t.Errorf("the waiting ended: %v", <-core.ended)
		}
	})
}

// The result may be there a moment after its client has gone: the connection that nobody reads is over by then, and nothing
// is written to the response once it is finished.
func TestConnectionOfADisconnectedClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &taskCore{newTestCore(), make(chan struct{}), make(chan error, 1)}
		f := start(t, core, nil)
		s := f.initialize(november2025)
		ctx, leave := context.WithCancel(t.Context())
		go func() { core.progress <- struct{}{} }()
		events := f.stream(s.post(ctx, taskResultBody))
		events.next()
		last := events.next()
		leave()
		synctest.Wait()
		core.proceed <- struct{}{}
		time.Sleep(time.Minute) // several times what keeps an open stream alive
		again := f.stream(s.get(t.Context(), "Last-Event-ID: "+last.ID))
		if e := again.next(); !strings.Contains(string(e.Data), `"result":{"content":[]}`) {
			t.Errorf("got %s", e.Data)
		}
		again.expectEnd()
	})
}

// A stream that begins when its client has gone begins without a connection: what takes each write, such as a proxy that
// reads on, would look like a client that is there.
func TestAStreamThatBeginsWithoutItsClientHasNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &taskCore{newTestCore(), make(chan struct{}), make(chan error, 1)}
		f := start(t, core, nil)
		s := f.initialize(november2025)
		ctx, leave := context.WithCancel(t.Context())
		response := httptest.NewRecorder()
		served := make(chan struct{})
		go func() {
			defer close(served)
			f.handler.ServeHTTP(response, s.post(ctx, taskResultBody))
		}()
		synctest.Wait()
		leave()
		synctest.Wait()
		core.progress <- struct{}{}
		time.Sleep(11 * time.Minute)
		select {
		case err := <-core.ended:
			if !errors.Is(err, mcp.ErrDisconnected) {
				t.Errorf("the waiting ended with %v", err)
			}
		default:
			t.Error("it is still waited")
			core.proceed <- struct{}{}
		}
		<-served
		time.Sleep(time.Minute)
		if response.Body.Len() > 0 {
			t.Errorf("nobody was told %q", response.Body)
		}
	})
}
