// Crowd is a stdio server of revision 2025-06-18 for measuring the web console: it lists 1,000
// tools, and after a call of its tool flood it sends as many notifications as the argument count
// says, each with size bytes.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// tools is the number of tools.
const tools = 1000

type object = map[string]any

// A message is a request or a response.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

// A peer is the client.
type peer struct {
	in  *json.Decoder
	out *bufio.Writer
}

func main() {
	p := &peer{json.NewDecoder(os.Stdin), bufio.NewWriter(os.Stdout)}
	for {
		var m message
		if p.in.Decode(&m) != nil {
			return // the end of standard input
		}
		if len(m.ID) > 0 && m.Method != "" {
			p.respond(&m)
		}
	}
}

func (p *peer) respond(m *message) {
	reply := message{ID: m.ID}
	switch m.Method {
	case "initialize":
		reply.Result = object{"protocolVersion": "2025-06-18", "capabilities": object{"tools": object{}},
			"serverInfo": object{"name": "crowd", "version": "1"}}
	case "ping":
		reply.Result = object{}
	case "tools/list":
		reply.Result = object{"tools": list()}
	case "tools/call":
		params, _ := m.Params.(map[string]any)
		arguments, _ := params["arguments"].(map[string]any)
		count, _ := arguments["count"].(float64)
		size, _ := arguments["size"].(float64)
		reply.Result = object{"content": []any{object{"type": "text", "text": "they follow"}}}
		defer p.flood(int(count), int(size))
	default:
		reply.Error = object{"code": -32601, "message": "Method not found"}
	}
	p.send(reply)
}

// flood sends notifications.
func (p *peer) flood(count, size int) {
	pad := object{"pad": strings.Repeat("x", size)}
	for range count {
		p.send(message{Method: "notifications/example", Params: pad})
	}
}

func (p *peer) send(m message) {
	m.JSONRPC = "2.0"
	_ = json.NewEncoder(p.out).Encode(m) // an error means that the client has left
	_ = p.out.Flush()
}

func list() (all []any) {
	number := object{"type": "integer"}
	schema := object{"type": "object", "properties": object{"count": number, "size": number}}
	for i := range tools - 1 {
		all = append(all, object{"name": fmt.Sprintf("tool_%04d", i), "title": fmt.Sprintf("The tool %d of many", i),
			"description": "Does what its name says.", "inputSchema": schema})
	}
	return append(all, object{"name": "flood", "inputSchema": schema})
}
