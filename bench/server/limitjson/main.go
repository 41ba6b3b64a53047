// Command limitjson is the baseline with encoding/json. It shows the cost of
// decoding and encoding on top of bare net/http and a bare loop. It dispatches
// on the method but validates nothing.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

type request struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  params          `json:"params"`
}

type params struct {
	Meta struct {
		Version       string          `json:"io.modelcontextprotocol/protocolVersion"`
		Client        implementation  `json:"io.modelcontextprotocol/clientInfo"`
		Capabilities  json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		ProgressToken any             `json:"progressToken"`
	} `json:"_meta"`
	Name      string  `json:"name"`
	Arguments echo.In `json:"arguments"`
}

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
}

type callResult struct {
	Type    string      `json:"resultType,omitempty"`
	Content []text      `json:"content"`
	Meta    *resultMeta `json:"_meta,omitempty"`
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type resultMeta struct {
	Server implementation `json:"io.modelcontextprotocol/serverInfo"`
}

type initializeResult struct {
	Version      string         `json:"protocolVersion"`
	Capabilities map[string]any `json:"capabilities"`
	Server       implementation `json:"serverInfo"`
}

type notification struct {
	JSONRPC string         `json:"jsonrpc"`
	Method  string         `json:"method"`
	Params  progressParams `json:"params"`
}

type progressParams struct {
	Token    any     `json:"progressToken"`
	Progress float64 `json:"progress"`
	Total    float64 `json:"total"`
}

var self = implementation{Name: "limit-json", Version: "1.0.0"}

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				serveHTTP(w, r, opts)
			})
		},
		Stdio: func(opts rig.Options) error {
			return serveLines(os.Stdin, os.Stdout, opts.Era)
		},
	})
}

func serveHTTP(w http.ResponseWriter, r *http.Request, opts rig.Options) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch req.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "limit-json")
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if !opts.SSE {
		w.Header().Set("Content-Type", "application/json")
		w.Write(encode(respond(&req, opts.Era)))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	if token := req.Params.Meta.ProgressToken; token != nil && req.Params.Name == echo.ProgressTool {
		writeEvent(w, encode(notification{
			JSONRPC: "2.0",
			Method:  "notifications/progress",
			Params:  progressParams{Token: token, Progress: 1, Total: 1},
		}))
		w.(http.Flusher).Flush()
	}
	writeEvent(w, encode(respond(&req, opts.Era)))
}

func writeEvent(w io.Writer, data []byte) {
	io.WriteString(w, "data: ")
	w.Write(data)
	io.WriteString(w, "\n\n")
}

// serveLines responds to each line of in and flushes when no further line is
// buffered.
func serveLines(in io.Reader, out io.Writer, era echo.Era) error {
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriterSize(out, 1<<16)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			return err
		}
		if req.ID != nil {
			w.Write(append(encode(respond(&req, era)), '\n'))
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

func respond(req *request, era echo.Era) response {
	res := response{JSONRPC: "2.0", ID: req.ID}
	if req.Method == "initialize" {
		res.Result = initializeResult{
			Version:      era.Revision(),
			Capabilities: map[string]any{"tools": map[string]any{}},
			Server:       self,
		}
		return res
	}
	result := callResult{Content: []text{{Type: "text", Text: req.Params.Arguments.Message}}}
	if era == echo.Modern {
		result.Type = "complete"
		result.Meta = &resultMeta{Server: self}
	}
	res.Result = result
	return res
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values of the types above
	}
	return data
}
