// Package echo defines the tools of every server of the benchmark and the
// arguments of the load, so that all servers do the same work.
package echo

import (
	"fmt"
	"strings"
	"sync"
)

// The tools that every server offers.
const (
	// Tool is the tool that returns its message.
	Tool = "echo"
	// ToolDescription describes Tool in every server's tool list.
	ToolDescription = "Return the message"
	// ProgressTool is like Tool, with one progress notification before the
	// result.
	ProgressTool = "echo_progress"
	// ProgressToolDescription describes ProgressTool in every server's tool list.
	ProgressToolDescription = "Report progress once, then return the message"
	// NotificationsTool is like Tool, with Notifications progress notifications before the
	// result.
	NotificationsTool = "echo_notes"
	// NotificationsToolDescription describes NotificationsTool in every server's tool list.
	NotificationsToolDescription = "Report progress a thousand times, then return the message"
	// CountTool returns the length of its message in bytes, in decimal.
	CountTool = "count"
	// CountToolDescription describes CountTool in every server's tool list.
	CountToolDescription = "Return the length of the message"
	// AskTool asks the client once, and then returns its message.
	AskTool = "ask"
	// AskToolDescription describes AskTool in every server's tool list.
	AskToolDescription = "Ask, then return the message"
	// LargeTool returns Large and ignores its message.
	LargeTool = "large"
	// LargeToolDescription describes LargeTool in every server's tool list.
	LargeToolDescription = "Return a large text"
)

const (
	// Message is the text that the load sends and expects back. It needs no
	// escape in JSON, so its bytes can be searched for in a response.
	Message = "the quick brown fox jumps over the lazy dog"
	// ProgressToken is the progress token of calls that request progress.
	// Concurrent calls never share a session, so one token is enough.
	ProgressToken = "progress"
	// Notifications is the number of progress notifications of a call of NotificationsTool.
	Notifications = 1000
	// LargeSize is the length of Large.
	LargeSize = 1 << 20
)

// Large is a text of LargeSize bytes that repeats Message. Like Message it
// needs no escape in JSON, so an encoder can copy it.
var Large = sync.OnceValue(func() string {
	return strings.Repeat(Message+" ", LargeSize/len(Message)+1)[:LargeSize]
})

// In is the argument type of all tools.
type In struct {
	Message string `json:"message" jsonschema:"the text to return"`
}

// ListedTool returns the name of the i-th tool of a list of tools, which all
// behave like Tool. All names have the same length, so that lists have the same
// length.
func ListedTool(i int) string { return fmt.Sprintf("tool_%04d", i) }

// GatewayServer returns the name of the i-th server behind a gateway. All names have the same length.
func GatewayServer(i int) string { return fmt.Sprintf("s%03d", i) }

// GatewayPage is the number of items of a page of a gateway's list.
const GatewayPage = 500

// GatewayTool returns the name that a gateway gives a tool of a server.
func GatewayTool(server, tool string) string { return server + "__" + tool }

// An Era is a family of protocol revisions with the same lifecycle.
type Era string

const (
	// Modern is the stateless era: every request carries its metadata in _meta.
	Modern Era = "modern"
	// Session is the era of initialize and Mcp-Session-Id.
	Session Era = "session"
)

// Revision returns the protocol revision that the benchmark uses in era e.
func (e Era) Revision() string {
	if e == Modern {
		return "2026-07-28"
	}
	return "2025-11-25"
}
