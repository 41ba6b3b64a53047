package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A recorder is a testing.TB that records its failures.
type recorder struct {
	testing.TB
	mu       sync.Mutex // guards the fields below
	faults   []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// faultsOf runs a test that is expected to fail, and returns its failures.
func faultsOf(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		test(r)
	}()
	<-done
	return strings.Join(r.faults, "\n")
}

// An invalidServer is a handler that violates the protocol.
type invalidServer func(ctx context.Context, req *mcp.Request) (mcp.Result, error)

func (w invalidServer) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == "server/discover" { // for the initialize of a session
		return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`), nil
	}
	return w(ctx, req)
}

// answers returns a handler that always returns the same result.
func answers(result string) invalidServer {
	return func(context.Context, *mcp.Request) (mcp.Result, error) { return mcp.RawResult(result), nil }
}

// notifies returns a handler that sends notifications, in which "$" is the id of the request, and
// returns an empty result.
func notifies(notifications ...string) invalidServer {
	return func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		for _, n := range notifications {
			method, params, _ := strings.Cut(n, " ")
			params = strings.ReplaceAll(params, "$", req.ID.String())
			if err := req.Notify(ctx, method, json.RawMessage(params)); err != nil {
				return nil, err
			}
		}
		return mcp.RawResult(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + req.ID.String() + `}}`), nil
	}
}

func requireSchemas(t *testing.T) {
	t.Helper()
	if SchemaDir() == "" {
		t.Skip("no schemas found")
	}
}

// The test of an invalid server fails on every transport.
func TestInvalidServersFail(t *testing.T) {
	requireSchemas(t)
	const ack = `notifications/subscriptions/acknowledged {"_meta":{"io.modelcontextprotocol/subscriptionId":$},"notifications":`
	const mine = ` {"_meta":{"io.modelcontextprotocol/subscriptionId":$}}`
	for _, test := range []struct {
		name, revision, method, params string
		server                         invalidServer
		want                           string // part of a failure
	}{
		{"a member is missing", Modern, "tools/list", `{}`, answers(`{"resultType":"complete","tools":[]}`), "missing properties 'cacheScope', 'ttlMs'"},
		{"a member is unknown", Modern, "tools/call", `{"name":"x"}`, answers(`{"resultType":"complete","content":[],"more":1}`), "'more' not allowed"},
		{"bad base64", Modern, "tools/call", `{"name":"x"}`,
			answers(`{"resultType":"complete","content":[{"type":"image","mimeType":"a/b","data":"!"}]}`), "not valid byte"},
		{"asks for input in tools/list", Modern, "tools/list", `{}`, answers(`{"resultType":"input_required","requestState":"x"}`), "cannot ask for input"},
		{"asks without end", Modern, "tools/call", `{"name":"x"}`, answers(`{"resultType":"input_required","requestState":"x"}`), "for the 20th time"},
		{"newer than its revision", "2024-11-05", "tools/list", `{}`,
			answers(`{"resultType":"complete","tools":[{"name":"x","inputSchema":{"type":"object"},"outputTemplate":"x"}]}`), "'outputTemplate' not allowed"},
		{"unknown notification", "2025-06-18", "tools/call", `{"name":"x"}`, notifies(`notifications/unknown {}`), `no method "notifications/unknown"`},
		{"newer notification", "2025-06-18", "x/y", `{}`, notifies(`notifications/message {"level":"shout","data":1}`), "'/params/level'"},
		{"change before the acknowledgement", Modern, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`,
			notifies("notifications/tools/list_changed" + mine), "not acknowledged yet"},
		{"change that was not asked for", Modern, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`,
			notifies(ack+`{"toolsListChanged":true}}`, "notifications/prompts/list_changed"+mine), "not subscribed to"},
		{"resource that was not asked for", Modern, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x://a"]}}`,
			notifies(ack+`{"resourceSubscriptions":["x://a"]}}`, `notifications/resources/updated {"uri":"x://b",`+mine[2:]), "not subscribed to"},
		{"acknowledges too much", Modern, "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x://a"]}}`,
			notifies(ack + `{"resourceSubscriptions":["x://b"]}}`), "what was not asked for"},
		{"acknowledges twice", Modern, "subscriptions/listen", `{"notifications":{}}`, notifies(ack+`{}}`, ack+`{}}`), "acknowledged twice"},
		{"another subscription", Modern, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`,
			notifies(ack+`{"toolsListChanged":true}}`, `notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":"$"}}`), "no subscription"},
		{"change on a request", Modern, "tools/call", `{"name":"x"}`, notifies(`notifications/tools/list_changed {}`), "no subscription"},
		{"no response", Modern, "tools/call", `{"name":"x"}`, func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "was not answered within 30s"},
		{"error", Modern, "tools/call", `{"name":"x"}`, func(context.Context, *mcp.Request) (mcp.Result, error) {
			return nil, mcp.Errorf(4711, "not today")
		}, "code 4711: not today"},
	} {
		for _, transport := range Transports() {
			t.Run(test.name+"/"+transport, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					faults := faultsOf(t, func(t testing.TB) {
						var params map[string]any
						if err := json.Unmarshal([]byte(test.params), &params); err != nil {
							t.Fatal(err)
						}
						Connect(t, test.server, Combination{transport, test.revision}, nil).Call(test.method, params)
					})
					if !strings.Contains(faults, test.want) {
						t.Errorf("got failures:\n%s\nwant %q among them", faults, test.want)
					}
				})
			})
		}
	}
}

// Invalid messages that a handler cannot send.
func TestInvalidMessagesFail(t *testing.T) {
	requireSchemas(t)
	good := answers(`{"resultType":"complete","content":[]}`)
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`:                        "a server sends no requests",
		`{"jsonrpc":"2.0","id":"1","result":{"resultType":"complete"}}`:         "a response to no request",
		`{"jsonrpc":"2.0","error":{"code":-32600,"message":"who are you?"}}`:    "a response to no request",
		`{"jsonrpc":"2.0","id":9,"error":{"code":-32021,"message":"no data"}}`:  "missing property 'data'",
		`{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"x","detail":{}}}`: "",
	} {
		m, err := jsonrpc.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			faults := faultsOf(t, func(t testing.TB) {
				c := Connect(t, good, Combination{InMemory, Modern}, nil)
				c.pending[jsonrpc.IntID(9)] = &Pending{Method: "tools/call", done: make(chan struct{})}
				c.receive(m)
			})
			if !strings.Contains(faults, want) || want == "" && faults != "" {
				t.Errorf("%s: got failures %q, want %q", text, faults, want)
			}
		})
	}
}

func TestRunCombinations(t *testing.T) {
	var ran []string
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "hello"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	for _, opts := range []*Options{nil, {RealTime: true}} {
		ran = nil
		RunOn(t, s, Combinations(), opts, func(t *testing.T, c *Client) {
			ran = append(ran, c.String())
			if got := string(c.Call("tools/call", map[string]any{"name": "hello"})); !strings.Contains(got, "hello") {
				t.Errorf("got %s", got)
			}
			c.Shutdown()
		})
		if len(ran) != 20 || ran[0] != "in-memory/2024-11-05" || ran[19] != "replicas/2026-07-28" {
			t.Errorf("ran %q, want 20 combinations", ran)
		}
	}
}

func TestLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		faults := faultsOf(t, func(t testing.TB) {
			NoLeaks(t)
			go func() { <-end }()
		})
		close(end)
		if !strings.Contains(faults, "TestLeaks") {
			t.Errorf("got %q", faults)
		}
		faults = faultsOf(t, func(t testing.TB) {
			NoLeaks(t)
			go func() {}()
		})
		if faults != "" {
			t.Errorf("a goroutine that ends: got %q", faults)
		}
	})
}

func TestGoldenComparesAndUpdates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b.txt")
	compare := func(text string) string {
		return faultsOf(t, func(t testing.TB) { Golden(t, file, text) })
	}
	if compare("one") == "" {
		t.Error("missing file: got no failure")
	}
	*update = true
	faults := compare("one")
	*update = false
	if faults != "" || compare("one") != "" {
		t.Errorf("got %q", faults)
	}
	if got := compare("two"); !strings.Contains(got, "-update") {
		t.Errorf("got %q", got)
	}
}

// Without schemas, tests run and messages are not validated.
func TestWithoutSchemas(t *testing.T) {
	t.Setenv("PATCHBAY_SCHEMAS", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	if dir := SchemaDir(); dir != "" {
		t.Skipf("found schemas at %s", dir)
	}
	RunOn(t, answers(`{"resultType":"complete","nonsense":1}`), []Combination{{InMemory, Modern}}, nil, func(t *testing.T, c *Client) {
		c.Call("tools/list", nil)
		if c.schema != nil {
			t.Error("got a schema, want none")
		}
	})
}

func TestTimeoutLimitsWaits(t *testing.T) {
	hangs := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "tools/call" {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return mcp.NewServer("s", "1", nil).ServeMCP(ctx, req)
	})
	for _, on := range Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := faultsOf(t, func(t testing.TB) {
					Connect(t, hangs, on, &Options{Timeout: 7 * time.Second}).Call("tools/call", map[string]any{"name": "x"})
				})
				if !strings.Contains(got, "tools/call was not answered within 7s") {
					t.Errorf("got %q, want a timeout", got)
				}
			})
		})
	}
}
