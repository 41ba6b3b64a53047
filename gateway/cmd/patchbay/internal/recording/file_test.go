package recording_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const (
	opening = `{"recording":1,"time":"2026-01-01T00:00:00Z","connection":"a"}` + "\n"
	asked   = `{"time":"2026-01-01T00:00:00Z","connection":"a","from":"client","message":` +
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1}}}}` + "\n"
	answered = `{"time":"2026-01-01T00:00:01Z","connection":"a","from":"server","message":` +
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"1"}]}}}` + "\n"
)

func TestReadRefusesInvalidFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":           "an empty file is not a recording",
		"hello\n":    "line 1: not a recording",
		`{"time":1}`: "line 1: not a recording",
		`{"recording":2,"time":"2026-01-01T00:00:00Z","connection":"a"}`: "line 1: version 2 of the format: this program reads version 1",
		opening + strings.Replace(asked, `"a"`, `"b"`, 1):                `line 2: unknown connection "b"`,
		opening + "{}}\n" + asked:                                        "line 2: invalid line",
		opening + strings.Replace(asked, "2.0", "3.0", 1):                "line 2: invalid message",
		opening + strings.Replace(asked, `"client"`, `"x"`, 1):           `line 2: invalid "from" "x"`,
		opening + asked:                      "no answer of a server",
		opening + strings.Repeat(" ", 6<<20): "line 2: a line has at most",
		strings.Repeat(strings.Replace(opening, `"a"`, `"?"`, 1), 1) + "x": "no answer of a server", // not complete
	} {
		_, err := recording.Read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v, want %s", text, err, want)
		}
	}
	var many strings.Builder
	for i := range 10_001 {
		many.WriteString(strings.Replace(opening, `"a"`,
			`"`+strings.Repeat("i", i%7)+string(rune('a'+i%26))+jsonrpc.IntID(int64(i)).String()+`"`, 1))
	}
	if _, err := recording.Read(strings.NewReader(many.String())); err == nil ||
		!strings.Contains(err.Error(), "at most 10000 connections") {
		t.Errorf("10001 connections: got %v", err)
	}
}

func TestReadIgnoresIncompleteLastLine(t *testing.T) {
	if _, err := recording.Read(strings.NewReader(opening + asked + answered + answered[:30])); err != nil {
		t.Error(err)
	}
}

func TestOpenAppendsOnlyToRecordingsOfTheUser(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	for range 2 {
		w, err := recording.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		w.Trace("p", "x")(mcp.Frame{Sent: true, Message: &jsonrpc.Message{Method: "a"}})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 4 {
		t.Errorf("got %q, %v, want 4 lines", text, err)
	}
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	refused := map[string]string{
		write("other", "[user]\n", 0o600):                            "is not a recording",
		write("later", strings.Replace(opening, "1", "2", 1), 0o600): "has version 2 of the format",
		write("incomplete", opening+"{", 0o600):                      "the last line is not complete",
		filepath.Join(dir, "absent", "a"):                            "",
		dir:                                                          "not a regular file",
	}
	if runtime.GOOS != "windows" {
		refused[write("shared", opening, 0o644)] = "accessible to other users"
		link := filepath.Join(dir, "link")
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		refused[link] = "not a regular file"
	}
	for path, want := range refused {
		before, _ := os.ReadFile(path)
		if _, err := recording.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s: changed to %q", path, after)
		}
	}
}

func TestLargeMessagesAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		mcp.AddTool(s, &mcp.Tool{Name: "large"}, func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", 5<<20), nil
		})
		file := record(t, calls(mcptest.Modern, "large", "next"), s, mcptest.Stdio)
		content, err := os.ReadFile(file)
		if err != nil || len(content) > 1<<20 || !strings.Contains(string(content), `"cut":52`) {
			t.Errorf("got %d bytes, %v, want less, with a mark", len(content), err)
		}
		c := mcptest.Dial(t, read(t, file).Handler(false), mcptest.Combinations()[0], nil)
		if _, err := c.CallTool(t.Context(), "large", nil); err == nil ||
			!strings.Contains(err.Error(), "the recording has only the beginning of this answer, of 52") {
			t.Errorf("got %v, want that the answer is cut", err)
		}
		if got := text(c.CallTool(t.Context(), "next", nil)); !strings.Contains(got, "call 1") {
			t.Errorf("next: got %s", got)
		}
	})
}

// FuzzRead reads a recording and replays it to requests that may be in it. Nothing panics, and every
// result is an object.
func FuzzRead(f *testing.F) {
	question := `{"time":"2026-01-01T00:00:00Z","connection":"a","from":"server","message":` +
		`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}}` + "\n" +
		`{"time":"2026-01-01T00:00:00Z","connection":"a","from":"client","message":` +
		`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}}` + "\n"
	progress := `{"time":"2026-01-01T00:00:00Z","connection":"a","from":"server","message":` +
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}}` + "\n"
	f.Add(opening + asked + progress + question + answered)
	f.Add(opening + asked + strings.Replace(answered, `"content"`,
		`"resultType":"input_required","requestState":"s","inputRequests"`, 1) +
		strings.Replace(asked, `"name"`, `"requestState":"s","inputResponses":{"a":1},"name"`, 1) + answered)
	f.Add(opening + strings.Replace(asked, "tools/call", "initialize", 1) + answered + asked +
		strings.Replace(answered, `"time"`, `"cut":1,"time"`, 1))
	f.Fuzz(func(t *testing.T, file string) {
		rec, err := recording.Read(strings.NewReader(file))
		if err != nil {
			return
		}
		h := rec.Handler(false)
		state := ""
		for range 4 {
			for _, method := range []string{"server/discover", "tools/list", "tools/call"} {
				raw := replayOnce(t, h, method, state)
				var object map[string]json.RawMessage
				if raw != nil && json.Unmarshal(raw, &object) != nil {
					t.Errorf("%s: got %q, want an object", method, raw)
				}
				if object["requestState"] != nil {
					state = `,"inputResponses":{"input":{"action":"accept"}},"requestState":` +
						string(object["requestState"])
				}
			}
		}
	})
}

// replayOnce sends a request and returns its result, or nil.
func replayOnce(t *testing.T, h mcp.Handler, method, state string) json.RawMessage {
	t.Helper()
	params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":7,` +
		`"io.modelcontextprotocol/logLevel":"debug",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{},"roots":{}}}`
	if method == "tools/call" {
		params += `,"name":"add","arguments":{"a":1}` + state
	}
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: json.RawMessage(params + "}")})
	if err != nil {
		t.Fatal(err)
	}
	req.Notify = func(_ context.Context, method string, params json.RawMessage) error {
		if !json.Valid(params) {
			t.Errorf("%s: invalid params %q", method, params)
		}
		return nil
	}
	res, err := h.ServeMCP(t.Context(), req)
	if err != nil {
		return nil
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		t.Errorf("%s: %v", method, err)
	}
	return raw
}
