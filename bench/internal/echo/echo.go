// Package echo fixes what every server of the benchmark offers and what the
// load asks for, so that all of them do the same work.
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
	// ProgressTool is Tool with one progress note before the result.
	ProgressTool = "echo_progress"
	// ProgressToolDescription describes ProgressTool in every server's tool list.
	ProgressToolDescription = "Report progress once, then return the message"
	// NotesTool is Tool with as many progress notes as Notes before the result.
	NotesTool = "echo_notes"
	// NotesToolDescription describes NotesTool in every server's tool list.
	NotesToolDescription = "Report progress a thousand times, then return the message"
	// CountTool returns how many bytes its message has, in decimal.
	CountTool = "count"
	// CountToolDescription describes CountTool in every server's tool list.
	CountToolDescription = "Return the length of the message"
	// LargeTool returns Large, whatever its message.
	LargeTool = "large"
	// LargeToolDescription describes LargeTool in every server's tool list.
	LargeToolDescription = "Return a large text"
)

const (
	// Message is the text that the load sends and expects back. It needs no
	// escape in JSON, so its bytes can be looked for in an answer.
	Message = "the quick brown fox jumps over the lazy dog"
	// ProgressToken is the token of calls that ask for progress. Calls in
	// flight together never share a session, so one token is enough.
	ProgressToken = "progress"
	// Notes is how many progress notes a call of NotesTool sends.
	Notes = 1000
	// LargeSize is the length of Large.
	LargeSize = 1 << 20
)

// Large is a text of LargeSize bytes, Message over and over. Like Message it
// needs no escape, so to copy it is all that anybody must do.
var Large = sync.OnceValue(func() string {
	return strings.Repeat(Message+" ", LargeSize/len(Message)+1)[:LargeSize]
})

// In is the argument type of all tools.
type In struct {
	Message string `json:"message" jsonschema:"the text to return"`
}

// ListedTool is the name of one of the tools that fill a list, which all do
// what Tool does. Names have the same length, so that lists are as long.
func ListedTool(i int) string { return fmt.Sprintf("tool_%04d", i) }

// An Era is a family of protocol revisions: how a server is set up and
// addressed.
type Era string

const (
	// Modern is the stateless era: every request carries its envelope.
	Modern Era = "modern"
	// Session is the era of initialize and Mcp-Session-Id.
	Session Era = "session"
)

// Revision returns the protocol revision that the benchmark speaks in era e.
func (e Era) Revision() string {
	if e == Modern {
		return "2026-07-28"
	}
	return "2025-11-25"
}
