package catalogue

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/visible"
)

// Limits of instructions: they are part of every conversation of the client.
const (
	// MaxServerInstructions limits the section of a server in bytes.
	MaxServerInstructions = 2 << 10
	// MaxInstructions is the maximum length of all instructions in bytes.
	MaxInstructions = 16 << 10
)

// Instructions returns the instructions of the catalogue: the text of Options, then a section of
// each server, whose heading is the ID of the server. In single mode it returns the server's
// instructions unchanged, unless Options contains a text.
func (c *Catalogue) Instructions() string { return c.instructions() }

func (c *Catalogue) newInstructions() string {
	switch {
	case c.options.Instructions == OmittedInstructions:
		return ""
	case c.options.Instructions == OnlyOwnInstructions:
		return cut(c.options.OwnInstructions, MaxInstructions)
	case c.options.Single && c.options.OwnInstructions == "":
		if len(c.servers) == 0 {
			return ""
		}
		return c.servers[0].Instructions
	}
	text := cut(strings.TrimSpace(c.options.OwnInstructions), MaxInstructions)
	for _, s := range c.servers {
		section := cut(sectionText(s.Instructions), MaxServerInstructions)
		if section == "" {
			continue
		}
		heading := "## " + s.ID + "\n\n"
		if text != "" {
			heading = "\n\n" + heading
		}
		room := MaxInstructions - len(text) - len(heading)
		if room <= 0 {
			break
		}
		text += heading + cut(section, room)
	}
	return text
}

// cut shortens text to at most n bytes, at a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// sectionText returns a server's instructions as the text of a section. A heading must not pass for
// the section of another server, so sectionText makes headings deeper, and removes lines that
// underline a heading. It also removes characters that a user does not see.
func sectionText(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*MaxServerInstructions)], "")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
	lines := strings.Split(strings.TrimSpace(visible.Strip(text)), "\n")
	for i, line := range lines {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "#"):
			lines[i] = "##" + line
		case line != "" && (strings.Trim(line, "=") == "" || strings.Trim(line, "-") == ""):
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// Limits of capabilities in bytes. Real capabilities take a few hundred.
const (
	maxCapabilities      = 16 << 10 // limits the capabilities of a server; longer capabilities are ignored
	maxUnionCapabilities = 64 << 10 // limits the union, which ignores the capabilities of further servers
)

// Capabilities returns the union of the servers' capabilities: a capability is declared if any
// server declares it, and a flag is set if any server sets it. For other values, the first server
// decides. If several servers declare an extension, Options.Extension must merge it.
//
// In single mode the result is the server's own declaration. The caller must not change it.
func (c *Catalogue) Capabilities() json.RawMessage { return c.capabilities() }

func (c *Catalogue) newCapabilities() json.RawMessage {
	union := []byte("{}")
	extensions := map[string][]string{} // servers by extension
	for _, s := range c.servers {
		if len(s.Capabilities) > maxCapabilities || jsonscan.Kind(s.Capabilities) != '{' ||
			jsonscan.Valid(s.Capabilities, jsonscan.Limits{}) != nil {
			continue
		}
		if c.options.Single {
			return s.Capabilities
		}
		if len(union) > maxUnionCapabilities {
			break
		}
		union = unite(union, s.Capabilities)
		declared, _ := jsonscan.Get(s.Capabilities, "extensions")
		for id := range jsonscan.Members(declared) {
			extensions[string(id)] = append(extensions[string(id)], s.Name)
		}
	}
	return rewrite(union, func(key string, value []byte) []byte {
		if key != "extensions" {
			return value
		}
		return rewrite(value, func(id string, value []byte) []byte {
			servers, several := extensions[id], c.options.Extension
			if len(servers) == 1 || several != nil && several(id, servers) {
				return value
			}
			return nil
		})
	})
}

// unite returns the union of two values: of objects all members, of others a, unless b is true or a
// is null.
func unite(a, b []byte) []byte {
	if jsonscan.Kind(a) == '{' && jsonscan.Kind(b) == '{' {
		for key, value := range jsonscan.Members(b) {
			if old, ok := jsonscan.Get(a, string(key)); ok {
				value = unite(old, value)
			}
			a = jsonscan.WithMember(a, string(key), value)
		}
		return a
	}
	if k := jsonscan.Kind(a); k == 'n' || k == 'f' && jsonscan.Kind(b) == 't' {
		return b
	}
	return a
}
