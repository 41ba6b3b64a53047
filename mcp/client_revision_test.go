package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Connect returns the same error for all responses of a server without the required revision.
//
// Requirement: VER-21
func TestRequiredRevisionIsUnsupported(t *testing.T) {
	for _, discover := range []string{
		`{"code":-32601,"message":"what?"}`,
		`{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}`,
		`{"hello":1}`,
		``,
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := serveResponses(t, responseTable{"server/discover": discover, "initialize": initialized})
			_, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: "2026-07-28", Logger: discardLogger()})
			if !errors.Is(err, mcp.ErrNoCommonRevision) {
				t.Errorf("%s: got %v, want ErrNoCommonRevision", discover, err)
			}
		})
	}
}

// Requirement: VER-21
func TestListOfVersionsInAnErrorIsLimited(t *testing.T) {
	versions := strings.TrimSuffix(strings.Repeat(`"x",`, 100_000), ",")
	discover := `{"code":-32022,"message":"?","data":{"supported":[` + versions + `]}}`
	transport, _ := serveResponses(t, responseTable{"server/discover": discover})
	_, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLogger()})
	if n := len(err.Error()); n > 8<<10 {
		t.Errorf("the error has %d bytes, want at most 8 KiB", n)
	}
}

// An upgradedServer is a server with sessions until modern is set.
type upgradedServer struct {
	modern atomic.Bool
	mu     sync.Mutex
	seen   []string // method, revision and protocolVersion of each request
	stuck  atomic.Bool
}

func (f *upgradedServer) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if f.stuck.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if !f.modern.Load() {
		m, _ := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}`))
		return nil, m.Error
	}
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.seen = append(f.seen, req.Method+" "+req.Revision()+" "+string(p.Meta["io.modelcontextprotocol/protocolVersion"]))
	f.mu.Unlock()
	if req.Method == "server/discover" {
		return mcp.RawResult(discovered), nil
	}
	return mcp.RawResult(emptyContent), nil
}

func (f *upgradedServer) Close() error { return nil }

func (f *upgradedServer) OpenSession(context.Context, func(*jsonrpc.Message)) (driver.SessionConn, error) {
	return &upgradedSession{f, make(chan struct{}), sync.Once{}}, nil
}

type upgradedSession struct {
	f    *upgradedServer
	done chan struct{}
	once sync.Once
}

func (s *upgradedSession) RoundTrip(_ context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	if s.f.modern.Load() {
		return nil, &mcp.TransportError{Method: req.Method, Err: driver.ErrSessionLost}
	}
	return &jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage(initialized)}, nil
}

func (s *upgradedSession) Send(context.Context, *jsonrpc.Message) error { return nil }

func (s *upgradedSession) Done() <-chan struct{} { return s.done }

func (s *upgradedSession) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// A request that is sent again to an updated server has the envelope of the modern revision.
//
// Requirement: VER-19
func TestRequestSentAgainHasTheNewRevision(t *testing.T) {
	f := &upgradedServer{}
	c, err := mcp.Connect(t.Context(), f, &mcp.ClientOptions{Logger: discardLogger()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.modern.Store(true)
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Error(err)
	}
	want := `server/discover 2026-07-28 "2026-07-28", tools/call 2026-07-28 "2026-07-28"`
	if got := strings.Join(f.seen, ", "); got != want {
		t.Errorf("got requests %s, want %s", got, want)
	}
}

// Requests that wait for a new connection have not run, and Close ends them.
func TestCloseEndsRequestsThatWaitForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &upgradedServer{}
		c, err := mcp.Connect(t.Context(), f, &mcp.ClientOptions{Logger: discardLogger(), ProbeTimeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		f.stuck.Store(true)
		f.modern.Store(true)
		ended := make(chan error, 2)
		go func() {
			_, err := c.CallTool(t.Context(), "x", nil)
			ended <- err
		}()
		synctest.Wait()
		go func() { ended <- c.RootsChanged(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) || mayHaveRun(t, err) {
			t.Errorf("call during another probe: got %v, want its deadline", err)
		}
		began := time.Now()
		c.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, mcp.ErrClosed) && !errors.Is(err, driver.ErrSessionLost) ||
				mayHaveRun(t, err) {
				t.Errorf("call that waits: got %v, want ErrClosed", err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
	})
}

// A modern server that no longer supports the revision is probed again.
//
// Requirement: VER-05
func TestServerDropsTheRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := responseTable{"server/discover": discovered, "initialize": initialized, "tools/call": emptyContent}
		transport, received := serveResponses(t, answers)
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLogger()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		synctest.Wait()
		unsupported := `{"code":-32022,"message":"?","data":{"supported":["2025-06-18"]}}`
		answers["server/discover"], answers["tools/call"] = unsupported, unsupported
		var protocolErr *mcp.Error
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.As(err, &protocolErr) || protocolErr.Code != -32022 {
			t.Errorf("got error %v, want code -32022", err)
		}
		want := "server/discover tools/call server/discover initialize notifications/initialized tools/call"
		if got := strings.Join(received(), " "); got != want || c.Revision() != "2025-06-18" {
			t.Errorf("got revision %s and messages %q, want 2025-06-18 and %q", c.Revision(), got, want)
		}
	})
}
