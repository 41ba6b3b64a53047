// Command limit is the baseline server of the benchmark. It uses bare net/http
// or a bare loop over standard input, and writes a prepared response around the
// id of the request. It parses and checks nothing except large arguments and
// results, which every server must scan once. No server on the same standard
// library can be cheaper. Clients are measured with this server, so it also
// responds to their initial requests.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

const (
	opening              = `{"jsonrpc":"2.0","id":`
	content              = `"content":[{"type":"text","text":"` + echo.Message + `"}]`
	info                 = `{"name":"limit","version":"1.0.0"}`
	progressNotification = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` +
		echo.ProgressToken + `","progress":1,"total":1}}`

	eventOpening = "data: "
	eventClosing = "\n\n"
)

// answers are the bytes after the id in the responses of one era.
type answers struct {
	call, list, discover string
	// result is the prefix and suffix of the text of a result, if they differ.
	result [2]string
}

var (
	modern = answers{
		call:   `,"result":{"resultType":"complete",` + content + modernMeta,
		result: [2]string{`,"result":{"resultType":"complete","content":[{"type":"text","text":`, `}]` + modernMeta},
		list: `,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public",` +
			list(tool(echo.Tool, echo.ToolDescription, schema)) + modernMeta,
		discover: `,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public",` +
			`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}` + modernMeta,
	}
	session = answers{
		call:     `,"result":{` + content + `}}`,
		result:   [2]string{`,"result":{"content":[{"type":"text","text":`, `}]}}`},
		list:     `,"result":{` + list(tool(echo.Tool, echo.ToolDescription, schema)) + `}}`,
		discover: `,"error":{"code":-32601,"message":"Method not found"}}`,
	}
)

const (
	modernMeta  = `,"_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}}}`
	initialized = `,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":` + info + `}}`
)

func main() {
	rig.Main(rig.Program{
		HTTP: newHandler,
		Stdio: func(opts rig.Options) error {
			if opts.Tool == echo.CountTool {
				return serveLongLines(os.Stdin, os.Stdout, answersOf(opts.Era))
			}
			return serveLines(os.Stdin, os.Stdout, answersOf(opts.Era))
		},
	})
}

// newHandler returns the cheapest handler for the requests of the load.
func newHandler(opts rig.Options) http.Handler {
	h := &handler{answers: answersOf(opts.Era)}
	switch {
	case opts.Tools > 0:
		return http.HandlerFunc(newLister(opts).serve)
	case opts.Tool == echo.CountTool:
		return http.HandlerFunc(h.serveCount)
	case opts.Tool == echo.LargeTool:
		return http.HandlerFunc(h.serveLarge)
	case opts.Tool == echo.NotificationsTool:
		return http.HandlerFunc(h.serveNotifications)
	case opts.SSE:
		return http.HandlerFunc(h.serveSSE)
	}
	return http.HandlerFunc(h.serveJSON)
}

func answersOf(e echo.Era) *answers {
	if e == echo.Modern {
		return &modern
	}
	return &session
}

// A handler sends the same response to every call.
type handler struct{ *answers }

// maxBody is well above any request of the load.
const maxBody = 4096

// A buffer contains one request and its response.
type buffer struct {
	in  [maxBody]byte
	out []byte
}

var buffers = sync.Pool{New: func() any { return &buffer{out: make([]byte, 0, maxBody)} }}

func (h *handler) serveJSON(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, ok := b.read(w, r)
	if !ok || !handleHandshake(w, body) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	b.out = h.append(b.out[:0], body)
	w.Write(b.out)
}

func (h *handler) serveSSE(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, ok := b.read(w, r)
	if !ok || !handleHandshake(w, body) {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	if bytes.Contains(body, []byte(`"`+echo.ProgressTool+`"`)) {
		writeProgress(w)
	}
	b.out = h.appendEvent(b.out[:0], body)
	w.Write(b.out)
}

// serveNotifications streams many notifications and flushes each of them.
func (h *handler) serveNotifications(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, ok := b.read(w, r)
	if !ok || !handleHandshake(w, body) {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	if string(method(body)) == "tools/call" {
		for range echo.Notifications {
			writeProgress(w)
		}
	}
	b.out = h.appendEvent(b.out[:0], body)
	w.Write(b.out)
}

func writeProgress(w http.ResponseWriter) {
	io.WriteString(w, eventOpening+progressNotification+eventClosing)
	w.(http.Flusher).Flush()
}

func (a *answers) appendEvent(dst, body []byte) []byte {
	dst = append(dst, eventOpening...)
	dst = a.append(dst, body)
	return append(dst, eventClosing...)
}

// handleHandshake responds to the two messages that open a session. It reports whether
// body still needs a response.
func handleHandshake(w http.ResponseWriter, body []byte) bool {
	switch string(method(body)) {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "limit")
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
		return false
	}
	return true
}

// read reads a request. It rejects requests for a stream of the session, which
// this server does not support.
func (b *buffer) read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.Method != http.MethodPost {
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return nil, false
	}
	if r.ContentLength <= 0 || r.ContentLength > maxBody {
		http.Error(w, "bad length", http.StatusBadRequest)
		return nil, false
	}
	body := b.in[:r.ContentLength]
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return nil, false
	}
	return body, true
}

// serveLines responds to each line of in. It flushes when no further line is
// buffered, so a burst costs one read and one write.
func serveLines(in io.Reader, out io.Writer, a *answers) error {
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriterSize(out, 1<<16)
	var answer []byte
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if string(method(line)) != "notifications/initialized" {
			answer = append(a.append(answer[:0], line), '\n')
			w.Write(answer)
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// append appends the prepared response to the request in body.
func (a *answers) append(dst, body []byte) []byte {
	rest := a.call
	switch string(method(body)) {
	case "initialize":
		rest = initialized
	case "server/discover":
		rest = a.discover
	case "tools/list":
		rest = a.list
	}
	dst = append(dst, opening...)
	dst = append(dst, id(body)...)
	return append(dst, rest...)
}

func id(body []byte) []byte {
	_, after, _ := bytes.Cut(body, []byte(`"id":`))
	return after[:max(0, bytes.IndexByte(after, ','))]
}

func method(body []byte) []byte {
	_, after, _ := bytes.Cut(body, []byte(`"method":"`))
	return after[:max(0, bytes.IndexByte(after, '"'))]
}
