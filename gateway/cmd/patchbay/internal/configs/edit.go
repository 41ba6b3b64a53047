package configs

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A field is a member of an entry: a string, list of strings, number, boolean or empty object.
type field struct {
	name  string
	value any
}

// A form specifies how an application stores servers: in which object, and with which members.
type form struct {
	within string // the member with the servers
	entry  func(name string, command []string) []field
	syntax syntax
}

// A syntax edits texts of a file format. Both functions must keep all bytes outside of the entry,
// and return an error if another value would change. remove returns jsonc.ErrAbsent if the text
// does not contain the entry.
type syntax struct {
	set    func(text []byte, within, name string, entry []field) ([]byte, error)
	remove func(text []byte, within, name string) ([]byte, error)
}

var (
	jsonSyntax = syntax{setJSON, removeJSON}
	tomlSyntax = syntax{setTOML, removeTOML}
	yamlSyntax = syntax{setYAML, removeYAML}
)

// forms maps each application that can start a command to its form; see docs/applications.md.
var forms = map[string]form{
	ownApp:           {"mcpServers", plainEntry, jsonSyntax},
	projectApp:       {"mcpServers", typedEntry, jsonSyntax},
	"claude-code":    {"mcpServers", typedEntry, jsonSyntax},
	"claude-desktop": {"mcpServers", plainEntry, jsonSyntax},
	"vscode":         {"servers", typedEntry, jsonSyntax},
	"cursor":         {"mcpServers", typedEntry, jsonSyntax},
	"codex":          {"mcp_servers", plainEntry, tomlSyntax},
	"gemini":         {"mcpServers", plainEntry, jsonSyntax},
	"windsurf":       {"mcpServers", plainEntry, jsonSyntax},
	"cline":          {"mcpServers", plainEntry, jsonSyntax},
	"opencode":       {"mcp", opencodeEntry, jsonSyntax},
	"zed":            {"context_servers", zedEntry, jsonSyntax},
	"goose":          {"extensions", gooseEntry, yamlSyntax},
}

func plainEntry(_ string, command []string) []field {
	return []field{{"command", command[0]}, {"args", command[1:]}}
}

func typedEntry(name string, command []string) []field {
	return append([]field{{"type", "stdio"}}, plainEntry(name, command)...)
}

// zedEntry contains the member source that releases before 2026 require.
func zedEntry(name string, command []string) []field {
	return append(append([]field{{"source", "custom"}}, plainEntry(name, command)...), field{"env", struct{}{}})
}

func opencodeEntry(_ string, command []string) []field {
	return []field{{"type", "local"}, {"command", command}, {"enabled", true}}
}

func gooseEntry(name string, command []string) []field {
	const timeout = 300 // seconds, as `goose configure` writes it
	return []field{{"enabled", true}, {"type", "stdio"}, {"name", name}, {"description", "Patchbay gateway"},
		{"cmd", command[0]}, {"args", command[1:]}, {"envs", struct{}{}}, {"env_keys", []string{}},
		{"timeout", timeout}}
}

// Install returns the text of a file of an application with an entry that starts a command. An entry
// of that name is replaced. All other bytes stay.
func Install(app string, text []byte, name string, command []string) ([]byte, error) {
	f, ok := forms[app]
	if !ok {
		return nil, fmt.Errorf("unknown application %.64q", app)
	}
	out, err := f.syntax.set(text, f.within, name, f.entry(name, command))
	if err != nil {
		return nil, err
	}
	s, err := readEntry(app, out, name)
	if err != nil {
		return nil, fmt.Errorf("cannot edit the file: %w", err)
	}
	unescaped := append([]string{s.Command}, s.Args...)
	for i, word := range unescaped {
		unescaped[i] = strings.ReplaceAll(word, "${$}", "$")
	}
	if s.Type != config.TypeStdio || !slices.Equal(unescaped, command) {
		return nil, fmt.Errorf("cannot edit the file: the entry would start %q", unescaped)
	}
	return out, nil
}

// Uninstall returns the text of an application's file without an entry. The error is
// jsonc.ErrAbsent if the file does not contain the entry.
func Uninstall(app string, text []byte, name string) ([]byte, error) {
	f, ok := forms[app]
	if !ok {
		return nil, fmt.Errorf("unknown application %.64q", app)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, jsonc.ErrAbsent
	}
	return f.syntax.remove(text, f.within, name)
}

// Entry returns an entry in the text of an application's file. The error is jsonc.ErrAbsent if the
// file does not contain the entry.
func Entry(app string, text []byte, name string) (*config.Server, error) {
	if jsonc.IsBlank(text) {
		return nil, jsonc.ErrAbsent
	}
	return readEntry(app, text, name)
}

func readEntry(app string, text []byte, name string) (*config.Server, error) {
	i := slices.IndexFunc(applications, func(a application) bool { return a.name == app })
	converted, err := applications[i].convert(text)
	if err != nil {
		return nil, err
	}
	f, err := config.Parse(converted)
	if err != nil && app == ownApp || err == nil && !f.Has(name) {
		return nil, jsonc.ErrAbsent // a file without servers is valid for Install
	}
	if err != nil {
		return nil, err
	}
	return f.Server(name)
}

func setJSON(text []byte, within, name string, entry []field) ([]byte, error) {
	value := []byte("{}")
	for _, f := range entry {
		value = rawjson.Set(value, f.name, []byte(literalOf(f.value, ": ")))
	}
	return jsonc.Set(text, []string{within, name}, value)
}

func removeJSON(text []byte, within, name string) ([]byte, error) {
	return jsonc.Remove(text, []string{within, name})
}

// literalOf returns JSON, which is also YAML and, except objects with members, TOML.
func literalOf(value any, colon string) string {
	switch value := value.(type) {
	case string:
		// Both formats refuse a plain DEL.
		return strings.ReplaceAll(string(rawjson.AppendQuote(nil, value)), "\x7f", `\u007f`)
	case []string:
		parts := make([]string, len(value))
		for i, element := range value {
			parts[i] = literalOf(element, colon)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []field:
		var parts []string
		for _, f := range value {
			parts = append(parts, keyOf(f.name)+colon+literalOf(f.value, colon))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case struct{}:
		return "{}"
	}
	return fmt.Sprint(value)
}

// keyOf returns a key of TOML or YAML, quoted unless it is a plain word in both.
func keyOf(name string) string {
	if plainKey.MatchString(name) && !slices.Contains(yamlWords, strings.ToLower(name)) {
		return name
	}
	return literalOf(name, "")
}

var (
	plainKey  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

// newlineOf returns the line break of a text.
func newlineOf(text []byte) string {
	if before, _, found := strings.Cut(string(text), "\n"); found && strings.HasSuffix(before, "\r") {
		return "\r\n"
	}
	return "\n"
}

// errOtherValues is returned instead of a text with another meaning.
var errOtherValues = errors.New("cannot edit the file without a change of other values")

// sameOthers returns errOtherValues unless two files are equal except for an entry. An object
// without other entries equals an absent object.
func sameOthers(before, after object, within, name string) error {
	if describeOthers(before, within, name) != describeOthers(after, within, name) {
		return errOtherValues
	}
	return nil
}

func describeOthers(all object, within, name string) string {
	others := object{}
	for key, value := range all {
		if key == within {
			servers, _ := value.(object)
			rest := object{}
			for server, entry := range servers {
				if server != name {
					rest[server] = entry
				}
			}
			if len(rest) == 0 && (servers != nil || value == nil) {
				continue
			}
			if servers != nil {
				value = rest
			}
		}
		others[key] = value
	}
	return fmt.Sprintf("%#v", others) // sorts keys, and not a number is itself
}
