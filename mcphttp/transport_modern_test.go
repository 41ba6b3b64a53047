package mcphttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// newMemTransport serves the handler on a memListener and returns a transport to it.
func newMemTransport(t *testing.T, handler http.HandlerFunc, opts *mcphttp.TransportOptions) *mcphttp.Transport {
	t.Helper()
	return newMemTransportAt(t, "/mcp", handler, opts)
}

func newMemTransportAt(t *testing.T, path string, handler http.HandlerFunc,
	opts *mcphttp.TransportOptions) *mcphttp.Transport {
	t.Helper()
	listener := newMemListener()
	server := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	var o mcphttp.TransportOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = discardLogger
	}
	network := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return listener.dial() },
	}
	o.Client = &http.Client{Transport: network}
	transport := mcphttp.NewTransport("http://localhost:8765"+path, &o)
	t.Cleanup(func() {
		transport.Close()
		network.CloseIdleConnections()
		server.Close()
		<-done
	})
	return transport
}

// result returns a response to a posted request.
func result(r *http.Request) string {
	return `{"jsonrpc":"2.0","id":` + idOf(r) + `,"result":{"resultType":"complete"}}`
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func writeEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e+"\n\n")
		w.(http.Flusher).Flush()
	}
}

func call(t *testing.T, tr *mcphttp.Transport) (string, error) {
	t.Helper()
	res, err := tr.RoundTrip(t.Context(), modernRequest(t, "tools/call", `"name":"x"`))
	if err != nil {
		return "", err
	}
	return string(res.(mcp.RawResult)), nil
}

func TestHDR_HeadersMirrorTheBody(t *testing.T) {
	var got http.Header
	tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		writeJSON(w, 200, result(r))
	}, &mcphttp.TransportOptions{Header: http.Header{"x-tenant": {"a", "b"}}})
	mirror := []driver.HeaderParam{
		{Header: "Region", Path: []string{"region"}, Type: "string"},
		{Header: "tenantId", Path: []string{"nested", "n"}, Type: "integer"},
		{Header: "Dry-Run", Path: []string{"dry"}, Type: "boolean"},
	}
	for _, test := range []struct {
		name, method, members string
		want                  map[string]string // "-" for no header
	}{
		{"version, method and Accept", "tools/list", ``, // Requirement: HDR-01, HDR-03, HTTP-08
			map[string]string{"Mcp-Protocol-Version": modern, "Mcp-Method": "tools/list", "Mcp-Name": "-",
				"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "X-Tenant": "a"}},
		// Requirement: HDR-04
		{"tool", "tools/call", `"name":"a b"`, map[string]string{"Mcp-Name": "a b"}},
		// Requirement: HDR-04
		{"prompt", "prompts/get", `"name":"p"`, map[string]string{"Mcp-Name": "p"}},
		// Requirement: HDR-04
		{"resource", "resources/read", `"uri":"file:///\u0061"`, map[string]string{"Mcp-Name": "file:///a"}},
		// Requirement: HDR-05
		{"task", "tasks/get", `"taskId":"t1"`, map[string]string{"Mcp-Name": "t1"}},
		{"tasks/update", "tasks/update", `"inputResponses":{},"taskId":"t1"`, // Requirement: HDR-05, TASKX-23
			map[string]string{"Mcp-Name": "t1"}},
		// Requirement: HDR-05, TASKX-23
		{"tasks/cancel", "tasks/cancel", `"taskId":"t1"`, map[string]string{"Mcp-Name": "t1"}},
		{"task id that is not ASCII", "tasks/get", `"taskId":"日本"`, // Requirement: HDR-05, TASKX-23, HDR-06
			map[string]string{"Mcp-Name": "=?base64?" + stdBase64("日本") + "?="}},
		{"name that is not ASCII", "tools/call", `"name":"né"`, // Requirement: HDR-06
			map[string]string{"Mcp-Name": "=?base64?" + stdBase64("né") + "?="}},
		{"name that is not a string", "tools/call", `"name":7`, map[string]string{"Mcp-Name": "-"}},
		{"values of each type", "tools/call", // Requirement: HDR-12, HDR-22
			`"name":"x","arguments":{"region":"eu","nested":{"n":42},"dry":false}`,
			map[string]string{"Mcp-Param-Region": "eu", "Mcp-Param-Tenantid": "42", "Mcp-Param-Dry-Run": "false"}},
		// Requirement: HDR-22
		{"integers in decimal", "tools/call", `"name":"x","arguments":{"nested":{"n":-4.20e1},"dry":true}`,
			map[string]string{"Mcp-Param-Region": "-", "Mcp-Param-Tenantid": "-42", "Mcp-Param-Dry-Run": "true"}},
		// Requirement: HDR-23
		{"space and control character", "tools/call", `"name":"x","arguments":{"region":" eu\n"}`,
			map[string]string{"Mcp-Param-Region": "=?base64?" + stdBase64(" eu\n") + "?="}},
		// Requirement: HDR-24
		{"literal that looks encoded", "tools/call", `"name":"x","arguments":{"region":"=?base64?eA==?="}`,
			map[string]string{"Mcp-Param-Region": "=?base64?" + stdBase64("=?base64?eA==?=") + "?="}},
		// Requirement: HDR-25
		{"markers in upper case", "tools/call", `"name":"x","arguments":{"region":"=?BASE64?eA==?="}`,
			map[string]string{"Mcp-Param-Region": "=?BASE64?eA==?="}},
		{"null and absent", "tools/call", `"name":"x","arguments":{"region":null,"nested":null}`, // Requirement: HDR-26
			map[string]string{"Mcp-Param-Region": "-", "Mcp-Param-Tenantid": "-", "Mcp-Param-Dry-Run": "-"}},
		{"empty string", "tools/call", `"name":"x","arguments":{"region":""}`, // Requirement: HDR-36
			map[string]string{"Mcp-Param-Region": ""}},
		// Requirement: HDR-17
		{"largest integer", "tools/call", `"name":"x","arguments":{"nested":{"n":9007199254740991}}`,
			map[string]string{"Mcp-Param-Tenantid": "9007199254740991"}},
		{"prompt arguments", "prompts/get", `"name":"x","arguments":{"region":"eu"}`,
			map[string]string{"Mcp-Param-Region": "-"}},
	} {
		req := modernRequest(t, test.method, test.members)
		req.HeaderParams = mirror
		if _, err := tr.RoundTrip(t.Context(), req); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		for name, want := range test.want {
			if values := got.Values(name); want == "-" && values != nil || want != "-" &&
				(len(values) == 0 || values[0] != want) {
				t.Errorf("%s: %s is %q, want %q", test.name, name, values, want)
			}
		}
	}
}

// Requirement: HDR-17
func TestArgumentsWithoutAHeaderFormAreNotSent(t *testing.T) {
	tr := newServerTransport(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") }, nil)
	for _, argument := range []string{`9007199254740992`, `1.5`, `1e400`, `{}`, `[1]`} {
		req := modernRequest(t, "tools/call", `"name":"x","arguments":{"n":`+argument+`}`)
		req.HeaderParams = []driver.HeaderParam{{Header: "N", Path: []string{"n"}, Type: "integer"}}
		if _, err := tr.RoundTrip(t.Context(), req); mayHaveRun(t, err) ||
			!strings.Contains(err.Error(), "Mcp-Param-N") {
			t.Errorf("%s: got %v, want an error that names the header", argument, err)
		}
	}
	req := modernRequest(t, "tools/call", `"name":"x","arguments":{"n":1}`)
	req.HeaderParams = []driver.HeaderParam{{Header: "N:\r\nX", Path: []string{"n"}, Type: "integer"}}
	if _, err := tr.RoundTrip(t.Context(), req); mayHaveRun(t, err) {
		t.Errorf("invalid header name: got %v, want an error before the request", err)
	}
	_, err := tr.RoundTrip(t.Context(), &mcp.Request{Method: "tools/list", Params: json.RawMessage(`{}`)})
	if mayHaveRun(t, err) {
		t.Errorf("request without _meta: got %v, want an error before the request", err)
	}
}

// Requirement: HDR-08
func TestServerAcceptsTheHeadersOfTheTransport(t *testing.T) {
	tr := start(t, newTestCore(), nil).transport(nil)
	for _, region := range []string{`"eu"`, `" é\u0000 "`, `"=?base64?eA==?="`, `""`, `null`} {
		req := modernRequest(t, "tools/call",
			`"name":"mirror","arguments":{"region":`+region+`,"nested":{"count":4.2e1},"dryRun":true}`)
		req.HeaderParams = newTestCore().HeaderParams(t.Context(), nil, "mirror")
		if _, err := tr.RoundTrip(t.Context(), req); err != nil {
			t.Errorf("%s: %v", region, err)
		}
	}
}

func TestTransport_InvalidOptionsFailEveryRequest(t *testing.T) {
	good := "http://localhost/mcp"
	for _, test := range []struct {
		url  string
		opts *mcphttp.TransportOptions
	}{
		{"", nil}, {"localhost:8080", nil}, {"ftp://localhost", nil}, {"http://", nil},
		{"http://user:secret@%zz/", nil},
		{good, &mcphttp.TransportOptions{Header: http.Header{"Mcp-Session-Id": {"x"}}}},
		{good, &mcphttp.TransportOptions{Header: http.Header{"accept": {"x"}}}},
		{good, &mcphttp.TransportOptions{Header: http.Header{"Mcp-Param-X": {"x"}}}},
		{good, &mcphttp.TransportOptions{Header: http.Header{"X:Y": {"x"}}}},
		{good, &mcphttp.TransportOptions{Header: http.Header{"X": {"x", "x\r\nY: z"}}}},
		{good, &mcphttp.TransportOptions{MaxResponse: -1}},
		{good, &mcphttp.TransportOptions{MaxEvent: -1}},
	} {
		tr := mcphttp.NewTransport(test.url, test.opts)
		if _, err := call(t, tr); mayHaveRun(t, err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q %+v: got %v, want an error before the request", test.url, test.opts, err)
		}
		if _, err := tr.OpenSession(t.Context(), nil); mayHaveRun(t, err) {
			t.Errorf("%q %+v: got %v, want an error before the request", test.url, test.opts, err)
		}
		tr.Close()
	}
}

// A redirect that changes the method or leads to another origin is not followed. The error contains
// its target.
func TestTransport_RefusesRedirectsOfAPOST(t *testing.T) {
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{other.URL, "/elsewhere"} {
			if to == "/elsewhere" && status >= 307 {
				continue
			}
			tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
				reached = reached || r.URL.Path == "/elsewhere"
				http.Redirect(w, r, to, status)
			}, nil)
			_, err := call(t, tr)
			var refused *mcphttp.StatusError
			if !errors.As(err, &refused) || refused.HTTPStatus() != status || mayHaveRun(t, err) ||
				refused.Header.Get("Location") != to || !strings.Contains(err.Error(), strconv.Quote(to)) {
				t.Errorf("%d to %s: got %v, want the status and the location", status, to, err)
			}
		}
	}
	if reached {
		t.Error("the redirect was followed")
	}
}

// Redirects with 307 and 308 within the origin are followed with the same method, body and headers.
func TestTransport_FollowsRedirectsThatKeepTheMethod(t *testing.T) {
	for _, status := range []int{307, 308} {
		for _, client := range []*http.Client{nil, {Transport: wrapped{http.DefaultTransport}}} {
			hops := 0
			tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
				if hops++; r.URL.Path != "/moved/" {
					http.Redirect(w, r, "/moved/", status)
					return
				}
				if r.Method != http.MethodPost || r.Header.Get("Mcp-Method") != "tools/call" {
					t.Errorf("got %s %v", r.Method, r.Header)
				}
				writeJSON(w, 200, result(r))
			}, &mcphttp.TransportOptions{Client: client})
			if _, err := call(t, tr); err != nil || hops > 3 {
				t.Errorf("%d: error %v after %d requests", status, err, hops)
			}
			loop := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, r.URL.Path+"/", status)
			}, &mcphttp.TransportOptions{Client: client})
			if _, err := call(t, loop); err == nil || mayHaveRun(t, err) {
				t.Errorf("endless %d: error %v, want an error of a request that has not run", status, err)
			}
		}
	}
}

// wrapped is a RoundTripper that is not an http.Transport.
type wrapped struct{ http.RoundTripper }

// Requirement: HDR-38
func TestStatusDecidesMayHaveRun(t *testing.T) {
	for status, may := range map[int]bool{
		400: false, 401: false, 403: false, 404: false, 405: false, 406: false, 413: false, 415: false, 421: false,
		429: false, 431: false, 409: true, 418: true, 500: true, 502: true, 503: true, 504: true, 202: true, 204: true,
		-503: false, // with Retry-After
	} {
		tr := newServerTransport(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="x"`)
			w.Header().Set("X-Other", "x")
			if status == -503 {
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(max(status, -status))
			_, _ = io.WriteString(w, "<html>\x1b[31m</html>")
		}, nil)
		_, err := call(t, tr)
		var refused *mcphttp.StatusError
		if !errors.As(err, &refused) || refused.StatusCode != max(status, -status) || mayHaveRun(t, err) != may {
			t.Fatalf("%d: got %v, want the status and MayHaveRun %v", status, err, may)
		}
		if strings.ContainsRune(err.Error(), '\x1b') || status >= 400 && !strings.Contains(err.Error(), "html") {
			t.Errorf("%d: got %q, want the body with its control characters escaped", status, err)
		}
		if refused.Header.Get("Www-Authenticate") == "" || refused.Header.Get("X-Other") != "" {
			t.Errorf("%d: got header %v, want only Www-Authenticate", status, refused.Header)
		}
	}
}

func TestTransport_InvalidResponsesAreErrors(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":          `hello`,
		"not a message":     `{"ok":true}`,
		"a notification":    `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`,
		"a request":         `{"jsonrpc":"2.0","id":ID,"method":"ping"}`,
		"a batch":           `[{"jsonrpc":"2.0","id":ID,"result":{}}]`,
		"another id":        `{"jsonrpc":"2.0","id":1234567,"result":{}}`,
		"the id a string":   `{"jsonrpc":"2.0","id":"ID","result":{}}`,
		"another id, error": `{"jsonrpc":"2.0","id":1234567,"error":{"code":1,"message":"no"}}`,
		"duplicate keys":    `{"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}`,
		"not an object":     `{"jsonrpc":"2.0","id":ID,"result":[]}`,
		"empty":             ``,
	} {
		fill := func(r *http.Request) string { return strings.ReplaceAll(body, "ID", idOf(r)) }
		for kind, handler := range map[string]http.HandlerFunc{
			"JSON":  func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, fill(r)) },
			"SSE":   func(w http.ResponseWriter, r *http.Request) { writeEvents(w, "data: "+fill(r)) },
			"other": func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, fill(r)) },
			"encoding": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "br")
				writeJSON(w, 200, result(r))
			},
		} {
			got, err := call(t, newServerTransport(t, handler, nil))
			if err == nil || !mayHaveRun(t, err) {
				t.Errorf("%s as %s: got %s, %v; want an error with MayHaveRun", name, kind, got, err)
			}
			if kind == "other" {
				if status := (*mcphttp.StatusError)(nil); !errors.As(err, &status) || status.StatusCode != 200 {
					t.Errorf("%s as %s: got %v, want the status", name, kind, err)
				}
			}
			if remote := (*mcp.Error)(nil); errors.As(err, &remote) {
				t.Errorf("%s as %s: got %v, want no error of the server", name, kind, err)
			}
		}
	}
}

// Requirement: HTTP-17
func TestMessagesThatDoNotBelongToTheStreamAreDropped(t *testing.T) {
	tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w,
			": comment", "event: other\ndata: {}", "id: 1\ndata:", "data: nonsense",
			`data: {"jsonrpc":"2.0","id":999,"result":{}}`,
			`data: {"jsonrpc":"2.0","id":999,"error":{"code":1,"message":"no"}}`,
			`data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`,
			`data: {"jsonrpc":"2.0","method":"notifications/a"}`,
			`data: {"jsonrpc":"2.0","method":"notifications/b","params":[]}`,
			`data: {"jsonrpc":"2.0",`+"\n"+`data: "method":"notifications/c","params":{"x":1}}`,
			"data: "+result(r))
	}, nil)
	var got notificationRecorder
	req := modernRequest(t, "tools/call", `"name":"x"`)
	req.Notify = got.record
	// An invalid message may have been the response, so it ends the request.
	if _, err := tr.RoundTrip(t.Context(), req); err == nil || !mayHaveRun(t, err) {
		t.Errorf("got %v, want an error with MayHaveRun", err)
	}
	tr = newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w,
			": comment", "event: other\ndata: {}", "id: 1\ndata:",
			`data: {"jsonrpc":"2.0","id":999,"result":{}}`,
			`data: {"jsonrpc":"2.0","id":999,"result":{"a":1,"a":2}}`,
			`data: {"jsonrpc":"2.0","id":999,"error":{"code":1,"message":"no"}}`,
			`data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`,
			`data: {"jsonrpc":"2.0","method":"notifications/a"}`,
			`data: {"jsonrpc":"2.0","method":"notifications/b","params":[]}`,
			`data: {"jsonrpc":"2.0",`+"\n"+`data: "method":"notifications/c","params":{"x":1}}`,
			"data: "+result(r))
	}, nil)
	if _, err := tr.RoundTrip(t.Context(), req); err != nil {
		t.Errorf("got %v, want the result", err)
	}
	if want := "[notifications/a {} notifications/c {\"x\":1}]"; fmt.Sprint(got.all) != want {
		t.Errorf("got %v, want %s", got.all, want)
	}
}

func TestTransport_LogsTheFirstDroppedMessageOnly(t *testing.T) {
	var log bytes.Buffer // written only on the goroutine of the call
	tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, append(slices.Repeat([]string{eventResult("999")}, 100), "data: "+result(r))...)
	}, &mcphttp.TransportOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := call(t, tr); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("%d lines were logged, want 1", lines)
	}
}

// Requirement: MHTTP-23
func TestErrorWithoutAnIDIsTheResponse(t *testing.T) {
	const body = `{"jsonrpc":"2.0","error":{"code":-32020,"message":"no"}}`
	for name, handler := range map[string]http.HandlerFunc{
		"JSON":    func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, body) },
		"400":     func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 400, body) },
		"as text": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, 500) },
		"null": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, 400, strings.Replace(body, `,`, `,"id":null,`, 1))
		},
		"SSE":      func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "data: "+body) },
		"with 413": func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 413, body) },
		"echoed id": func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, 404, strings.Replace(body, `,`, `,"id":`+idOf(r)+`,`, 1))
		},
	} {
		_, err := call(t, newServerTransport(t, handler, nil))
		var remote *mcp.Error
		if !errors.As(err, &remote) || !remote.Remote() || remote.Code != driver.CodeHeaderMismatch {
			t.Errorf("%s: got %v, want the server's error", name, err)
		}
	}
}

func TestTransport_LimitsBodiesAndEvents(t *testing.T) {
	const limit = 10_000
	padded := func(r *http.Request, size int) string {
		body := result(r)
		return body + strings.Repeat(" ", size-len(body))
	}
	zip := func(w http.ResponseWriter, body string) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, body)
		z.Close()
	}
	for name, handler := range map[string]func(w http.ResponseWriter, r *http.Request, size int){
		"with a length": func(w http.ResponseWriter, r *http.Request, size int) {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			writeJSON(w, 200, padded(r, size))
		},
		"in chunks": func(w http.ResponseWriter, r *http.Request, size int) {
			body := padded(r, size)
			writeJSON(w, 200, body[:100])
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, body[100:])
		},
		"compressed": func(w http.ResponseWriter, r *http.Request, size int) { zip(w, padded(r, size)) },
		"as an event": func(w http.ResponseWriter, r *http.Request, size int) {
			writeEvents(w, "data:"+padded(r, size))
		},
	} {
		for size, fits := range map[int]bool{limit: true, limit + 1: false} {
			tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) { handler(w, r, size) },
				&mcphttp.TransportOptions{MaxResponse: limit, MaxEvent: limit})
			_, err := call(t, tr)
			if fits && err != nil || !fits && (!errors.Is(err, mcphttp.ErrTooLarge) || !mayHaveRun(t, err)) {
				t.Errorf("%s, %d bytes: got %v, want ErrTooLarge %t", name, size, err, !fits)
			}
		}
	}
}

// A compressed body, a line and a body of 1 GiB each are read up to the default limits only.
func TestTransport_LimitsEndlessResponses(t *testing.T) {
	chunk := []byte(strings.Repeat(" ", 64<<10))
	endless := func(w io.Writer) {
		for range 16 << 10 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "application/json")
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			endless(z)
		},
		"length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "999999999999")
			w.(http.Flusher).Flush()
		},
		"JSON": func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, " "); endless(w) },
		"line": func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w, "data: {}")
			_, _ = io.WriteString(w, "data:")
			endless(w)
		},
	} {
		before := heapInUse()
		_, err := call(t, newServerTransport(t, handler, nil))
		if name == "line" { // the event before the line is not a message, and ends the request
			if err == nil {
				t.Errorf("%s: got no error", name)
			}
			continue
		}
		if !errors.Is(err, mcphttp.ErrTooLarge) {
			t.Errorf("%s: got %v, want ErrTooLarge", name, err)
		}
		if grown := heapInUse() - before; grown > 64<<20 {
			t.Errorf("%s: the heap has grown by %d bytes, want at most 64 MiB", name, grown)
		}
	}
}

// The body of a response with an error status is limited in length and time.
func TestTransport_LimitsBodiesOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, handler := range map[string]http.HandlerFunc{
			"long": func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(500)
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
						return
					}
				}
			},
			"slow": func(w http.ResponseWriter, r *http.Request) {
				_ = idOf(r)
				w.WriteHeader(500)
				_, _ = io.WriteString(w, "xx")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			},
		} {
			tr := newMemTransport(t, handler, nil)
			began := time.Now()
			_, err := call(t, tr)
			var status *mcphttp.StatusError
			if !errors.As(err, &status) || status.StatusCode != 500 || !strings.HasPrefix(status.Body, `"xx`) ||
				len(status.Body) > 1100 {
				t.Errorf("%s: got %v, want status 500 and the start of the body", name, err)
			}
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("%s: the call took %v, want at most 5s", name, d)
			}
		}
	})
}

func TestTransport_FailedConnectionMeansNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Nothing listens on the port of this connection, and no program can while it is open.
	open, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, url := range []string{"http://" + open.LocalAddr().String() + "?key=secret",
		"http://no.such.host.invalid/?key=secret"} {
		tr := mcphttp.NewTransport(url, nil)
		if _, err := call(t, tr); mayHaveRun(t, err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error before the request", url, err)
		}
		tr.Close()
	}
	server := httptest.NewTLSServer(nil)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	defer server.Close()
	tr := mcphttp.NewTransport(server.URL, nil)
	defer tr.Close()
	if _, err := call(t, tr); mayHaveRun(t, err) {
		t.Errorf("unknown certificate: got %v, want an error before the request", err)
	}
}

// Requirement: MHTTP-07, MHTTP-08
func TestBrokenStreamLosesTheRequest(t *testing.T) {
	var ids []string
	tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, r.Method+idOf(r))
		writeEvents(w, "id: 7\nretry: 100\ndata:", `data: {"jsonrpc":"2.0","method":"notifications/a"}`)
	}, nil)
	for range 2 {
		if _, err := call(t, tr); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, mcp.ErrClosed) ||
			!mayHaveRun(t, err) {
			t.Errorf("got %v, want ErrUnexpectedEOF and MayHaveRun", err)
		}
	}
	if fmt.Sprint(ids) != "[POST1 POST2]" {
		t.Errorf("got requests %v, want two POSTs", ids)
	}
}

// The caller does not wait for the end of an event stream.
func TestTransport_ReusesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		network := f.client.Transport.(*http.Transport)
		dial, dialled := network.DialContext, 0
		network.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled++
			return dial(ctx, network, address)
		}
		tr := f.transport(nil)
		for range 5 {
			for _, tool := range []string{"echo", "notify", "missing", "error", "late", "busy"} {
				ctx, cancel := context.WithCancel(t.Context())
				_, _ = tr.RoundTrip(ctx, modernRequest(t, "tools/call", `"name":"`+tool+`"`))
				cancel()
				synctest.Wait()
			}
		}
		if dialled != 1 {
			t.Errorf("30 calls took %d connections, want 1", dialled)
		}
	})
}
