package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// sampleEvery is how often an answer is decoded and checked in full; the first
// one on each connection always is. The others are only looked through for
// their id and text, which costs the load next to nothing.
const sampleEvery = 1000

// message is any JSON-RPC message of a server.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Error   json.RawMessage `json:"error"`
	Result  struct {
		Type    string `json:"resultType"`
		IsError bool   `json:"isError"`
		Tools   []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Params struct {
		ProgressToken string `json:"progressToken"`
	} `json:"params"`
}

// A glance is what every right answer to a call holds.
type glance struct {
	text  []byte
	least int // bytes
}

func (c Call) glance() glance {
	switch {
	case c.List > 0:
		return glance{[]byte(`"` + echo.ListedTool(c.List-1) + `"`), c.List * len(echo.ListedTool(0)+echo.ToolDescription)}
	case c.Tool == echo.CountTool:
		return glance{[]byte(`"` + c.text() + `"`), 0}
	}
	// Notes of a thousand come before the text, and the text of a large answer
	// is the same all over.
	return glance{[]byte(echo.Message), len(c.text()) + c.notes()*len(`"method":"notifications/progress"`)}
}

// check looks through an answer.
func (g glance) check(answer, id []byte) error {
	if len(answer) < g.least || !bytes.Contains(answer, g.text) || !bytes.Contains(answer, id) {
		return fmt.Errorf("wrong answer to id %s: %.300q", id, answer)
	}
	return nil
}

// check decodes the answer to the call with the given id.
func (c Call) check(answer, id []byte) error {
	var m message
	if err := json.Unmarshal(answer, &m); err != nil {
		return fmt.Errorf("answer %.300q: %w", answer, err)
	}
	complete := m.Result.Type == "complete" || c.Era == echo.Session
	if m.JSONRPC != "2.0" || !bytes.Equal(m.ID, id) || m.Error != nil || m.Result.IsError || !complete || !c.fits(&m) {
		return fmt.Errorf("wrong answer to id %s: %.300q", id, answer)
	}
	return nil
}

// fits reports whether a result holds what was asked for.
func (c Call) fits(m *message) bool {
	if c.List == 0 {
		return len(m.Result.Content) == 1 && m.Result.Content[0].Type == "text" && m.Result.Content[0].Text == c.text()
	}
	for i, tool := range m.Result.Tools {
		if tool.Name != echo.ListedTool(i) || tool.Description != echo.ToolDescription || len(tool.Schema) == 0 {
			return false
		}
	}
	return len(m.Result.Tools) == c.List
}

// checkStream decodes an event stream: the progress notes if the call asks for
// any, then the answer, and nothing else.
func (c Call) checkStream(stream, id []byte) error {
	var events [][]byte
	for line := range bytes.Lines(stream) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
			events = append(events, bytes.TrimSpace(data))
		}
	}
	notes := c.notes()
	if len(events) != notes+1 {
		return fmt.Errorf("stream has %d events, want %d: %.500q", len(events), notes+1, stream)
	}
	for _, note := range events[:notes] {
		if err := checkNote(note); err != nil {
			return err
		}
	}
	return c.check(events[notes], id)
}

func checkNote(note []byte) error {
	var m message
	if err := json.Unmarshal(note, &m); err != nil {
		return fmt.Errorf("note %.300q: %w", note, err)
	}
	if m.Method != "notifications/progress" || m.Params.ProgressToken != echo.ProgressToken {
		return fmt.Errorf("wrong note: %.300q", note)
	}
	return nil
}

// checkInitialized decodes the answer to initialize, alone or in a stream.
func checkInitialized(answer []byte) error {
	if i := bytes.Index(answer, []byte("{")); i >= 0 {
		answer = answer[i:]
	}
	var m struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	// A stream goes on after the message, which a decoder does not mind.
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(&m); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if m.Result.Version != echo.Session.Revision() {
		return errors.New("initialize: server speaks " + m.Result.Version)
	}
	return nil
}
