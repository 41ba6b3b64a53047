// Package lint checks what an MCP server lists: its tools, prompts, resources, resource templates,
// capabilities and protocol revisions.
//
// The caller fills in a [Server] and calls [Check]. Every [Finding] names a [Rule], whose id does not
// change between versions. All text of findings comes from the server: clean it before a terminal
// shows it.
package lint

import (
	stdjson "encoding/json"
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxFindings bounds the findings that are kept: a server can list 10,000 tools.
	maxFindings = 1000
	// maxShown bounds a text of the server in a finding, in characters.
	maxShown = 60
	// maxNamed limits the names that a finding lists.
	maxNamed = 5
)

// A Server contains the messages and lists of a server.
type Server struct {
	Revision     string             // of the connection
	Newest       string             // the newest revision that there is
	Supported    []string           // the revisions that the server speaks; nil if they were not tried
	Info         stdjson.RawMessage // Implementation
	Capabilities stdjson.RawMessage // ServerCapabilities
	Instructions string

	Tools, Prompts, Resources, Templates []stdjson.RawMessage // valid JSON, as listed

	// ToolsAgain contains the names of a second list of tools; nil if the list was read once.
	ToolsAgain []string
	// Served maps a capability such as "resources.subscribe" to whether the server serves it,
	// declared or not. Capabilities that were not tried are absent.
	Served map[string]bool
	// Broken maps a list that could not be read to the end to the reason.
	Broken map[string]string
}

// A Finding identifies a place that breaks a rule.
type Finding struct {
	Rule    *Rule
	Where   string // such as "tool add"
	Message string
}

// A Cost is the estimated cost of a tool for a model that is offered it.
type Cost struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`  // of the name, the description and the input schema
	Tokens int    `json:"tokens"` // see [Tokens]
}

// A Report is the result of [Check].
type Report struct {
	Findings []Finding // in the order of the lists
	Dropped  int       // findings beyond the limit of 1000
	Costs    []Cost    // of the tools, in the order of their list
}

type checker struct {
	server   *Server
	disabled []string
	report   Report
}

// add adds a finding, unless its rule is disabled.
func (c *checker) add(rule, where, format string, args ...any) {
	switch {
	case slices.Contains(c.disabled, rule):
	case len(c.report.Findings) == maxFindings:
		c.report.Dropped++
	default:
		c.report.Findings = append(c.report.Findings, Finding{Find(rule), where, fmt.Sprintf(format, args...)})
	}
}

// An item is an element of a list.
type item struct {
	kind                     string // "tool", "prompt", "resource" or "template"
	where                    string
	raw                      []byte
	name, title, description string
}

func newItem(kind string, number int, raw []byte) *item {
	it := &item{kind: kind, raw: raw, name: rawjson.GetString(raw, "name"), title: rawjson.GetString(raw, "title"),
		description: rawjson.GetString(raw, "description")}
	annotations, _ := rawjson.Get(raw, "annotations")
	if it.title == "" && kind == "tool" {
		it.title = rawjson.GetString(annotations, "title")
	}
	it.where = kind + " " + shown(it.name)
	if it.name == "" {
		it.where = fmt.Sprintf("%s number %d", kind, number+1)
	}
	return it
}

// has reports whether an object contains a member that is not null.
func has(object []byte, key string) bool {
	raw, ok := rawjson.Get(object, key)
	return ok && rawjson.Kind(raw) != 'n'
}

// shown returns a text of the server for a finding.
func shown(text string) string {
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return text
}

// list returns names for a finding.
func list(names []string) string {
	text := ""
	for i, name := range names[:min(len(names), maxNamed)] {
		if i > 0 {
			text += ", "
		}
		text += shown(name)
	}
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
