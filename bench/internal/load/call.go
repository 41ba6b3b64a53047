// Package load is the neutral client of the benchmark: raw bytes over raw
// connections, prepared in advance, so that what is measured is the server.
// It knows no SDK.
package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// A Call is what the load asks of a server, over and over.
type Call struct {
	Era  echo.Era
	Tool string // one of the tools of package echo
	SSE  bool   // answers must come as event streams
	// List, if not zero, asks for the list of so many tools in place of a
	// call: echo.ListedTool each.
	List int
}

// Method is the method of the request.
func (c Call) Method() string {
	if c.List > 0 {
		return "tools/list"
	}
	return "tools/call"
}

// notes is how many progress notes come before the answer.
func (c Call) notes() int {
	switch {
	case c.List > 0:
		return 0
	case c.Tool == echo.ProgressTool:
		return 1
	case c.Tool == echo.NotesTool:
		return echo.Notes
	}
	return 0
}

// argument is the message that the tool gets.
func (c Call) argument() string {
	if c.Tool == echo.CountTool {
		return echo.Large()
	}
	return echo.Message
}

// text is what the tool must return.
func (c Call) text() string {
	switch c.Tool {
	case echo.CountTool:
		return strconv.Itoa(echo.LargeSize)
	case echo.LargeTool:
		return echo.Large()
	}
	return echo.Message
}

// firstID is where ids begin. Every id has the same number of digits, so a
// prepared request stays valid, and as long, whatever its id.
const firstID = 100_000_000

const idDigits = 9

// Message returns the call as one JSON-RPC message, for benchmarks that carry
// it themselves.
func (c Call) Message() []byte {
	text, _ := c.message()
	return text
}

// Check reports whether answer is the right answer to Message.
func (c Call) Check(answer []byte) error {
	return c.check(answer, strconv.AppendInt(nil, firstID, 10))
}

// message returns the call as one JSON-RPC message, with firstID as its id,
// and the offset of the id in it.
func (c Call) message() (text []byte, id int) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	id = b.Len()
	fmt.Fprintf(&b, `%d,"method":%q,"params":{`, firstID, c.Method())
	var params []string
	if meta := c.meta(); meta != "" {
		params = append(params, fmt.Sprintf(`"_meta":{%s}`, meta))
	}
	if c.List == 0 {
		params = append(params, fmt.Sprintf(`"name":%q,"arguments":{"message":%q}`, c.Tool, c.argument()))
	}
	b.WriteString(strings.Join(params, ",") + "}}")
	return b.Bytes(), id
}

// meta returns the members of the call's _meta.
func (c Call) meta() string {
	var meta string
	if c.Era == echo.Modern {
		meta = fmt.Sprintf(`"io.modelcontextprotocol/protocolVersion":%q,`+
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}`, c.Era.Revision())
	}
	if c.notes() == 0 {
		return meta
	}
	if meta != "" {
		meta += ","
	}
	return meta + fmt.Sprintf(`"progressToken":%q`, echo.ProgressToken)
}

// The two messages that open a session.
var (
	initialize = []byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}`, echo.Session.Revision()))
	initialized = []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
)

// increment adds one to the decimal number in digits, in place.
func increment(digits []byte) {
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] != '9' {
			digits[i]++
			return
		}
		digits[i] = '0'
	}
}

// answerID finds the id of a call in the bytes of its answer.
func answerID(answer []byte) (int, bool) {
	_, after, found := bytes.Cut(answer, []byte(`"id":`))
	if !found || len(after) < idDigits {
		return 0, false
	}
	id, err := strconv.Atoi(string(after[:idDigits]))
	return id, err == nil
}
