package lint

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/uritemplate"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	maxInstructions = 2000 // characters; hosts cut longer instructions
	maxTools        = 40   // hosts offer 40 to 128 tools of all servers together
)

// Check checks a server with all rules except the disabled rules.
func Check(s *Server, disabled []string) *Report {
	c := &checker{server: s, disabled: disabled}
	c.checkServer()
	c.checkTools()
	c.checkPrompts()
	c.checkResources()
	c.checkTemplates()
	return &c.report
}

// checkServer checks the server itself rather than its items.
func (c *checker) checkServer() {
	s := c.server
	for _, key := range []string{"name", "version"} {
		if rawjson.GetString(s.Info, key) == "" {
			c.add("server-name-missing", "server", "missing %s", key)
		}
	}
	if n := utf8.RuneCountInString(s.Instructions); n > maxInstructions {
		c.add("instructions-long", "instructions", "%d characters", n)
	}
	if r, found := visible.First(s.Instructions); found {
		c.add("hidden-characters", "instructions", "contains U+%04X", r)
	}
	c.checkCapabilities()
	for _, list := range []string{"tools", "prompts", "resources", "templates"} {
		if why, broken := s.Broken[list]; broken {
			c.add("list-broken", list, "%s", why)
		}
	}
	if s.Supported == nil {
		return
	}
	if !slices.Contains(s.Supported, s.Newest) {
		c.add("revision-newest", "server", "speaks %s, not %s", strings.Join(s.Supported, ", "), s.Newest)
	}
	if !slices.ContainsFunc(s.Supported, func(r string) bool { return !isSince(r, driver.July2026) }) {
		c.add("revision-sessions", "server", "speaks only %s", strings.Join(s.Supported, ", "))
	}
}

// checkCapabilities compares the declared capabilities with the served capabilities.
func (c *checker) checkCapabilities() {
	s := c.server
	sizes := map[string]int{"tools": len(s.Tools), "prompts": len(s.Prompts),
		"resources": len(s.Resources) + len(s.Templates)}
	for _, name := range []string{"tools", "prompts", "resources", "resources.subscribe", "completions", "logging"} {
		served, tried := s.Served[name]
		declared := isDeclared(s.Capabilities, name)
		size, isList := sizes[name]
		switch {
		case !tried:
		case declared && !served:
			c.add("capability-not-served", "capability "+name, "declared, but the server does not know its method")
		case !declared && served:
			c.add("capability-not-declared", "capability "+name, "the server serves it, but does not declare it")
		case declared && isList && size == 0:
			c.add("capability-empty", "capability "+name, "declared, but the list is empty")
		}
	}
}

// isSince reports whether a revision is known, and is the first one or later.
func isSince(revision, first string) bool {
	return revision >= first && slices.Contains(driver.Revisions(), revision)
}

// isDeclared reports whether a path such as "resources.subscribe" is an object or true.
func isDeclared(capabilities []byte, path string) bool {
	for key := range strings.SplitSeq(path, ".") {
		value, ok := rawjson.Get(capabilities, key)
		if !ok {
			return false
		}
		capabilities = value
	}
	return rawjson.Kind(capabilities) == '{' || rawjson.Kind(capabilities) == 't'
}

// Completion returns the params of a completion that the server should support: of the first
// argument of a prompt or variable of a template. It is nil if the server lists neither.
func (s *Server) Completion() map[string]any {
	request := func(kind, key, value, argument string) map[string]any {
		return map[string]any{"ref": map[string]string{"type": kind, key: value},
			"argument": map[string]string{"name": argument, "value": ""}}
	}
	for _, prompt := range s.Prompts {
		arguments, _ := rawjson.Get(prompt, "arguments")
		for argument := range rawjson.Elements(arguments) {
			return request("ref/prompt", "name", rawjson.GetString(prompt, "name"), rawjson.GetString(argument, "name"))
		}
	}
	for _, raw := range s.Templates {
		text := rawjson.GetString(raw, "uriTemplate")
		if template, err := uritemplate.Parse(text); err == nil && len(template.Variables()) > 0 {
			return request("ref/resource", "uri", text, template.Variables()[0])
		}
	}
	return nil
}
