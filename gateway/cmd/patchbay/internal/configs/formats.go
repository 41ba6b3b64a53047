package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v4"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// An object is a JSON object, a table of TOML or a mapping of YAML. Members of the wrong type stay
// in it: config.File.Server reports them.
type object = map[string]any

// An entry converts the entry of a server; the result is nil if the entry is not an MCP server.
type entry func(server object) object

func asIs(text []byte) ([]byte, error) { return text, nil }

func unchanged(server object) object { return server }

// withoutHeaderCommand removes the command that only Claude Code runs.
func withoutHeaderCommand(server object) object {
	delete(server, "headersHelper")
	return server
}

func vscode(text []byte) ([]byte, error) {
	return convertJSON(text, func(all object) any { return all["servers"] }, withoutHeaderCommand)
}

func claudeDesktop(text []byte) ([]byte, error) { return convertJSON(text, mcpServers, literal) }

// sameForm converts files whose entries contain the members that config.File.Server reads, such as
// the files of Cursor, Windsurf and Cline.
func sameForm(text []byte) ([]byte, error) {
	return convertJSON(text, mcpServers, withoutHeaderCommand)
}

func mcpServers(all object) any { return all["mcpServers"] }

// claudeCode converts the servers of the user and, first, the servers for the current directory.
// Source: Claude Code, MCP installation scopes.
func claudeCode(text []byte) ([]byte, error) {
	return convertJSON(text, func(all object) any {
		given := all["mcpServers"]
		servers, ok := given.(object)
		if !ok && given != nil {
			return given // an error
		}
		merged := maps.Clone(servers)
		if merged == nil {
			merged = object{}
		}
		dir, err := os.Getwd()
		if err != nil {
			return merged
		}
		projects, _ := all["projects"].(object)
		for _, name := range []string{dir, filepath.ToSlash(dir)} {
			project, _ := projects[name].(object)
			local, _ := project["mcpServers"].(object)
			maps.Copy(merged, local)
		}
		return merged
	}, unchanged)
}

// gemini converts settings.json of Gemini CLI, in which $NAME is a variable. Source: Gemini CLI.
func gemini(text []byte) ([]byte, error) {
	return convertJSON(text, mcpServers, func(server object) object {
		out := eachText(server, func(s string) string { return dollarName.ReplaceAllString(s, "${$1}") })
		if _, ok := out["httpUrl"]; ok {
			delete(out, "url") // httpUrl comes first
		} else if _, ok := out["type"]; !ok && out["url"] != nil {
			out["type"] = "sse"
		}
		return withoutHeaderCommand(out)
	})
}

var dollarName = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)

// opencode converts opencode.json, in which {env:NAME} and {file:PATH} are variables. Source:
// opencode, MCP servers and Config.
func opencode(text []byte) ([]byte, error) {
	return convertJSON(text, func(all object) any { return all["mcp"] }, func(server object) object {
		if server["command"] == nil && server["url"] == nil {
			return nil // the entry only enables or disables a server of another file
		}
		return eachText(literal(server), func(s string) string {
			return braceFile.ReplaceAllString(braceEnv.ReplaceAllString(s, "${env:$1:-}"), "${file:$1}")
		})
	})
}

var (
	braceEnv  = regexp.MustCompile(`\{env:([^{}]+)\}`)
	braceFile = regexp.MustCompile(`\{file:([^{}]+)\}`)
)

// zed converts settings.json of Zed. Extensions' entries contain no command. Source: Zed, MCP.
func zed(text []byte) ([]byte, error) {
	return convertJSON(text, func(all object) any { return all["context_servers"] }, func(server object) object {
		if nested, ok := server["command"].(object); ok { // older releases
			server["command"] = nested["path"]
			for _, key := range []string{"args", "env"} {
				if nested[key] != nil {
					server[key] = nested[key]
				}
			}
		}
		if server["command"] == nil && server["url"] == nil {
			return nil
		}
		return literal(server)
	})
}

// maxTOML bounds files of TOML and YAML, whose parsers keep all of it in memory, in bytes.
const maxTOML = 1 << 20

// codex converts config.toml of Codex. Source: codex-rs/config/src/mcp_types.rs.
func codex(text []byte) ([]byte, error) {
	all, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	return canonical(all["mcp_servers"], nil, func(server object) object {
		out := literal(server)
		rename(out, "http_headers", "headers")
		if names, ok := server["env_http_headers"].(object); ok {
			for header, name := range names {
				put(out, "headers", header, fmt.Sprintf("${env:%v}", name))
			}
		}
		if name, ok := server["bearer_token_env_var"]; ok {
			put(out, "headers", "Authorization", fmt.Sprintf("Bearer ${env:%v}", name))
		}
		names, _ := server["env_vars"].([]any)
		for _, name := range names {
			if table, ok := name.(object); ok {
				name = table["name"]
			}
			put(out, "env", fmt.Sprint(name), fmt.Sprintf("${env:%v:-}", name))
		}
		for _, converted := range []string{"env_http_headers", "bearer_token_env_var", "env_vars"} {
			delete(out, converted)
		}
		return out
	})
}

// goose converts config.yaml of Goose, which contains other extensions too. Source:
// crates/goose/src/agents/extension.rs.
func goose(text []byte) ([]byte, error) {
	all, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	return canonical(all["extensions"], nil, func(server object) object {
		switch server["type"] {
		case "stdio", "sse", "streamable_http":
		default:
			return nil
		}
		values, _ := server["envs"].(object)
		headers, _ := server["headers"].(object)
		out := literal(server)
		rename(out, "cmd", "command")
		rename(out, "uri", "url")
		rename(out, "envs", "env")
		names, _ := server["env_keys"].([]any)
		for _, name := range names {
			put(out, "env", fmt.Sprint(name), fmt.Sprintf("${env:%v:-}", name))
		}
		delete(out, "env_keys")
		for header, value := range headers { // Goose replaces variables here only
			if s, ok := value.(string); ok {
				put(out, "headers", header, bracedName.ReplaceAllStringFunc(s, func(name string) string {
					if given, ok := values[name[2:len(name)-1]].(string); ok {
						return escape(given)
					}
					return name
				}))
			}
		}
		return out
	})
}

var bracedName = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// convertJSON converts a JSON file with comments. servers returns the value with the servers.
func convertJSON(text []byte, servers func(all object) any, convert entry) ([]byte, error) {
	plain, err := config.Plain(text)
	if err != nil {
		return nil, err
	}
	var all object
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, errors.New("invalid configuration: must be a JSON object")
	}
	return canonical(servers(all), object{"inputs": all["inputs"], "patchbay": all["patchbay"]}, convert)
}

// canonical returns servers, sorted by name, and other members in the format of config.Parse.
func canonical(servers any, others object, convert entry) ([]byte, error) {
	given, ok := servers.(object)
	if !ok && servers != nil {
		return nil, errors.New("invalid servers: must be an object")
	}
	out := object{}
	for name, server := range given {
		entry, ok := server.(object)
		if !ok {
			out[name] = nil // config.File.Server returns an error
		} else if entry = convert(entry); entry != nil {
			text, err := json.Marshal(eachText(entry, escapeExec))
			if err != nil {
				text = []byte("null") // a value that JSON lacks, such as nan
			}
			out[name] = json.RawMessage(text)
		}
	}
	file := object{"mcpServers": out}
	for name, value := range others {
		if value != nil {
			file[name] = value
		}
	}
	return json.Marshal(file)
}

// literal escapes the variables of an application that replaces no variables.
func literal(server object) object { return withoutHeaderCommand(eachText(server, escape)) }

func escape(s string) string { return strings.ReplaceAll(s, "${", "${$}{") }

// escapeExec escapes the variable that runs a command. Other applications do not define it, so an
// entry that another program wrote to its file must not run a command.
func escapeExec(s string) string { return strings.ReplaceAll(s, "${exec:", "${$}{exec:") }

// eachText returns an entry after a change of all texts in which variables are replaced.
func eachText(server object, change func(s string) string) object {
	changed := func(value any) any {
		if s, ok := value.(string); ok {
			return change(s)
		}
		return value
	}
	out := object{}
	for key, value := range server {
		switch value := value.(type) {
		case []any:
			list := make([]any, len(value))
			for i, element := range value {
				list[i] = changed(element)
			}
			out[key] = list
		case object:
			table := object{}
			for name, member := range value {
				table[name] = changed(member)
			}
			out[key] = table
		default:
			out[key] = changed(value)
		}
	}
	return out
}

func rename(server object, from, to string) {
	if value, ok := server[from]; ok {
		server[to] = value
		delete(server, from)
	}
}

// put sets a member of a member, which becomes an object.
func put(server object, key, name, value string) {
	table, ok := server[key].(object)
	if !ok {
		table = object{}
		server[key] = table
	}
	table[name] = value
}

// checkNesting returns an error for a file that would use much memory or time: the parser calls
// itself for each bracket, and its time for a dotted key grows with the square of its parts.
func checkNesting(text []byte) error {
	const most, mostDots = 100, 200 // open brackets, and dots of a line, even in strings
	depth, dots := 0, 0
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		case '.':
			dots++
		case '\n':
			dots = 0
		}
		if depth > most || dots > mostDots {
			return fmt.Errorf("invalid TOML: nested more than %d levels, or a line with more than %d dots",
				most, mostDots)
		}
	}
	return nil
}

// parseTOML parses a file. The error contains the line and the column.
func parseTOML(text []byte) (all object, err error) {
	if len(text) > maxTOML {
		return nil, fmt.Errorf("file of %d bytes is too large: want at most %d", len(text), maxTOML)
	}
	if err := checkNesting(text); err != nil {
		return nil, err
	}
	if err = toml.Unmarshal(text, &all); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return nil, fmt.Errorf("line %d, column %d: invalid TOML", parse.Position.Line, parse.Position.Col)
		}
		return nil, errors.New("invalid TOML")
	}
	return all, nil
}

// parseYAML parses a file. The error contains the line.
func parseYAML(text []byte) (all object, err error) {
	if len(text) > maxTOML {
		return nil, fmt.Errorf("file of %d bytes is too large: want at most %d", len(text), maxTOML)
	}
	if err := yaml.Load(text, &all, yaml.WithUniqueKeys()); err != nil {
		if isBlankYAML(text) {
			return object{}, nil
		}
		if line := yamlLine.FindString(err.Error()); line != "" {
			return nil, fmt.Errorf("%s: invalid YAML", line)
		}
		return nil, errors.New("invalid YAML: must be a mapping")
	}
	return all, nil
}

var yamlLine = regexp.MustCompile(`line \d+`)

// isBlankYAML reports whether a text contains only empty lines and comments.
func isBlankYAML(text []byte) bool {
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return !hasOtherBreaks(text)
}

// hasOtherBreaks reports whether the parser ends lines at bytes of a text where the edits do not.
func hasOtherBreaks(text []byte) bool {
	return bytes.ContainsAny(bytes.ReplaceAll(text, []byte("\r\n"), nil), "\r\u0085\u2028\u2029")
}
