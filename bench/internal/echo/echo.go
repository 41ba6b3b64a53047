// Package echo fixes what every server of the benchmark offers and what the
// load asks for, so that all of them do the same work.
package echo

const (
	// Tool is the tool that returns its message.
	Tool = "echo"
	// ToolDescription describes Tool in every server's tool list.
	ToolDescription = "Return the message"
	// ProgressTool is Tool with one progress note before the result.
	ProgressTool = "echo_progress"
	// ProgressToolDescription describes ProgressTool in every server's tool list.
	ProgressToolDescription = "Report progress once, then return the message"
	// Message is the text that the load sends and expects back. It needs no
	// escape in JSON, so its bytes can be looked for in an answer.
	Message = "the quick brown fox jumps over the lazy dog"
	// ProgressToken is the token of calls that ask for progress. Calls in
	// flight together never share a session, so one token is enough.
	ProgressToken = "progress"
)

// In is the argument type of both tools.
type In struct {
	Message string `json:"message" jsonschema:"the text to return"`
}

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
