// Package load is the neutral client of the benchmark. It uses no SDK and sends
// prepared bytes over raw connections, so that the server dominates the
// measurement.
package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// A Call is the request that the load repeats.
type Call struct {
	Era  echo.Era
	Tool string // one of the tools of package echo
	SSE  bool   // responses must be event streams
	// List, if not zero, replaces the call by tools/list. It is the number of
	// tools, each named by echo.ListedTool.
	List int
	// Wide lists tools as echo.WideTool describes them.
	Wide bool
	// Server is the server of Tool behind a gateway, and Servers the number of
	// servers of List. Without them, there is no gateway.
	Server  string
	Servers int
	// OneSession shares the session of the first connection among all connections.
	OneSession bool
	// Callers, if not zero, is the number of principals that take turns. Each sends its Token.
	Callers int
}

// Token returns the access token of the i-th caller. All tokens have the same length.
func Token(i int) string { return fmt.Sprintf("caller-of-the-benchmark-%0*d", tokenDigits, i) }

const tokenDigits = 5

// lastPage returns the index of the first tool on the last page of the list.
func (c Call) lastPage() int {
	if c.Servers == 0 {
		return 0 // the only one
	}
	return (c.List - 1) / echo.GatewayPage * echo.GatewayPage
}

// further returns the number of requests after the first one of a call.
func (c Call) further() int {
	if c.Tool == echo.AskTool {
		return 1
	}
	return c.lastPage() / echo.GatewayPage
}

// tool returns the name of the tool that is called.
func (c Call) tool() string {
	if c.Server != "" {
		return echo.GatewayTool(c.Server, c.Tool)
	}
	return c.Tool
}

// listedTool returns the name of the i-th tool of the list.
func (c Call) listedTool(i int) string {
	if c.Servers == 0 {
		return echo.ListedTool(i)
	}
	each := c.List / c.Servers
	return echo.GatewayTool(echo.GatewayServer(i/each), echo.ListedTool(i%each))
}

// Method is the method of the request.
func (c Call) Method() string {
	if c.List > 0 {
		return "tools/list"
	}
	return "tools/call"
}

// notifications returns the number of progress notifications before the response.
func (c Call) notifications() int {
	switch {
	case c.List > 0:
		return 0
	case c.Tool == echo.ProgressTool:
		return 1
	case c.Tool == echo.NotificationsTool:
		return echo.Notifications
	}
	return 0
}

// argument returns the message argument of the tool.
func (c Call) argument() string {
	if c.Tool == echo.CountTool {
		return echo.Large()
	}
	return echo.Message
}

// text returns the text that the tool must return.
func (c Call) text() string {
	switch c.Tool {
	case echo.CountTool:
		return strconv.Itoa(echo.LargeSize)
	case echo.LargeTool:
		return echo.Large()
	}
	return echo.Message
}

// firstID is the first id. Every id has the same number of digits, so a
// prepared request keeps its length when its id changes.
const firstID = 100_000_000

const idDigits = 9

// Message returns the call as one JSON-RPC message, for benchmarks with their
// own transport.
func (c Call) Message() []byte {
	text, _ := c.message()
	return text
}

// Check returns an error unless answer is the correct response to Message.
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
		params = append(params, fmt.Sprintf(`"name":%q,"arguments":{"message":%q}`, c.tool(), c.argument()))
	}
	b.WriteString(strings.Join(params, ",") + "}}")
	return b.Bytes(), id
}

// meta returns the members of the call's _meta.
func (c Call) meta() string {
	var meta string
	if c.Era == echo.Modern {
		capabilities := "{}"
		if c.Tool == echo.AskTool {
			capabilities = `{"elicitation":{"form":{}}}`
		}
		meta = fmt.Sprintf(`"io.modelcontextprotocol/protocolVersion":%q,`+
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},`+
			`"io.modelcontextprotocol/clientCapabilities":%s`, c.Era.Revision(), capabilities)
	}
	if c.notifications() == 0 {
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

// answerID finds the id of a call in the bytes of its response.
func answerID(answer []byte) (int, bool) {
	_, after, found := bytes.Cut(answer, []byte(`"id":`))
	if !found || len(after) < idDigits {
		return 0, false
	}
	id, err := strconv.Atoi(string(after[:idDigits]))
	return id, err == nil
}
