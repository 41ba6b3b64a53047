package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// sampleEvery is the interval at which a response is decoded and checked in
// full. The first response on each connection is always checked in full. The
// others are only searched for their id and text, which costs the load very
// little.
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

// A quickCheck verifies a response without decoding it.
type quickCheck struct {
	text  []byte
	least int // bytes
}

func (c Call) quickCheck() quickCheck {
	switch {
	case c.List > 0:
		return quickCheck{[]byte(`"` + c.listedTool(c.List-1) + `"`),
			(c.List - c.lastPage()) * len(echo.ListedTool(0)+echo.ToolDescription)}
	case c.Tool == echo.CountTool:
		return quickCheck{[]byte(`"` + c.text() + `"`), 0}
	}
	// With many notifications the text comes after them, and the text of a
	// large response repeats.
	return quickCheck{[]byte(echo.Message), len(c.text()) + c.notifications()*len(`"method":"notifications/progress"`)}
}

// check searches the response for its id and text.
func (g quickCheck) check(answer, id []byte) error {
	if len(answer) < g.least || !bytes.Contains(answer, g.text) || !bytes.Contains(answer, id) {
		return fmt.Errorf("wrong response to id %s: %.300q", id, answer)
	}
	return nil
}

// check decodes the response to the call with the given id.
func (c Call) check(answer, id []byte) error {
	var m message
	if err := json.Unmarshal(answer, &m); err != nil {
		return fmt.Errorf("response %.300q: %w", answer, err)
	}
	complete := m.Result.Type == "complete" || c.Era == echo.Session
	if m.JSONRPC != "2.0" || !bytes.Equal(m.ID, id) || m.Error != nil || m.Result.IsError || !complete || !c.fits(&m) {
		return fmt.Errorf("wrong response to id %s: %.300q", id, answer)
	}
	return nil
}

// fits reports whether a result has the requested content.
func (c Call) fits(m *message) bool {
	if c.List == 0 {
		return len(m.Result.Content) == 1 && m.Result.Content[0].Type == "text" && m.Result.Content[0].Text == c.text()
	}
	first := c.lastPage()
	for i, tool := range m.Result.Tools {
		if tool.Name != c.listedTool(first+i) || !strings.HasPrefix(tool.Description, echo.ToolDescription) ||
			len(tool.Schema) == 0 {
			return false
		}
	}
	return len(m.Result.Tools) == c.List-first
}

// checkStream decodes an event stream. It must consist of the requested
// progress notifications and then the response.
func (c Call) checkStream(stream, id []byte) error {
	var events [][]byte
	for line := range bytes.Lines(stream) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
			events = append(events, bytes.TrimSpace(data))
		}
	}
	notes := c.notifications()
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
		return fmt.Errorf("progress notification %.300q: %w", note, err)
	}
	if m.Method != "notifications/progress" || m.Params.ProgressToken != echo.ProgressToken {
		return fmt.Errorf("wrong progress notification: %.300q", note)
	}
	return nil
}

// checkInitialized decodes the response to initialize, as a JSON body or in an
// event stream.
func checkInitialized(answer []byte) error {
	if i := bytes.Index(answer, []byte("{")); i >= 0 {
		answer = answer[i:]
	}
	var m struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	// A stream has more bytes after the message. The decoder ignores them.
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(&m); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if m.Result.Version != echo.Session.Revision() {
		return errors.New("initialize: unexpected protocol version " + m.Result.Version)
	}
	return nil
}
