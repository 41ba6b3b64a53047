package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A codec encodes calls and decodes their responses.
type codec interface {
	request(id int64, message string) ([]byte, error)
	text(answer []byte) (string, error)
}

// A preparedCodec sends the same message every time.
type preparedCodec struct {
	template []byte
	at       int // of the id, which has as many digits as every id up to the next billion
}

// firstID is the first id, and the id in the template.
const firstID = 100_000_000

func newPreparedCodec(era echo.Era) *preparedCodec {
	c := &preparedCodec{template: load.Call{Era: era, Tool: echo.Tool}.Message()}
	c.at = bytes.Index(c.template, strconv.AppendInt(nil, firstID, 10))
	return c
}

func (c *preparedCodec) request(id int64, _ string) ([]byte, error) {
	request := append(make([]byte, 0, len(c.template)+1), c.template...)
	strconv.AppendInt(request[c.at:c.at], id, 10)
	return request, nil
}

func (c *preparedCodec) text(answer []byte) (string, error) {
	if !bytes.Contains(answer, []byte(echo.Message)) {
		return "", fmt.Errorf("wrong response: %.300q", answer)
	}
	return echo.Message, nil
}

// A jsonCodec uses encoding/json.
type jsonCodec struct{ era echo.Era }

type request struct {
	JSONRPC string `json:"jsonrpc"`
	ID      int64  `json:"id"`
	Method  string `json:"method"`
	Params  params `json:"params"`
}

type params struct {
	Meta      map[string]any `json:"_meta,omitempty"`
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

type response struct {
	ID     int64           `json:"id"`
	Error  json.RawMessage `json:"error"`
	Result struct {
		IsError bool `json:"isError"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
}

func (s *jsonCodec) request(id int64, message string) ([]byte, error) {
	p := params{Name: echo.Tool, Arguments: map[string]any{"message": message}}
	if s.era == echo.Modern {
		p.Meta = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    s.era.Revision(),
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "bench", "version": "1.0.0"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
	}
	return json.Marshal(request{JSONRPC: "2.0", ID: id, Method: "tools/call", Params: p})
}

func (s *jsonCodec) text(answer []byte) (string, error) {
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		return "", err
	}
	if r.Error != nil || r.Result.IsError || len(r.Result.Content) != 1 {
		return "", fmt.Errorf("wrong response: %.300q", answer)
	}
	return r.Result.Content[0].Text, nil
}
