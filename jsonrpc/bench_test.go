package jsonrpc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// toolsCall is a modern tools/call with its envelope, about 300 bytes.
const toolsCall = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello world"},` +
	`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
	`{"name":"bench","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// plainMessage is the same envelope for encoding/json.
type plainMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

func benchmarkMessages() map[string][]byte {
	inString := func(text string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"text":"` + text + `"}}`)
	}
	row := `{"id":12345,"name":"row","tags":["a","b"],"score":0.25,"active":true,"note":"some words"},`
	return map[string][]byte{
		"call 300 B":          []byte(toolsCall),
		"1 MiB ASCII text":    inString(strings.Repeat("lorem ipsum dolor ", 1<<20/18)),
		"1 MiB non-ASCII":     inString(strings.Repeat("東京と京都。", 1<<20/18)),
		"1 MiB escaped lines": inString(strings.Repeat(`forty bytes of text and then a line end\n`, 1<<20/41)),
		"1 MiB of objects": []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":[` +
			strings.TrimSuffix(strings.Repeat(row, 1<<20/len(row)), ",") + `]}`),
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, data := range benchmarkMessages() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jsonrpc.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeEncodingJSON(b *testing.B) {
	for name, data := range benchmarkMessages() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				var m plainMessage
				if err := json.Unmarshal(data, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	m, err := jsonrpc.Decode([]byte(toolsCall))
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = jsonrpc.Append(buf[:0], m)
	}
}
