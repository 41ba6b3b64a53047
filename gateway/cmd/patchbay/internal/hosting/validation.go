package hosting

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// NamesFrom returns the names of the servers that come from a file.
func (c *Config) NamesFrom(path string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := []string{}
	for name, t := range c.Targets {
		if t.From == path {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A ConfigProblem is an error or a warning about a configuration file, in JSON.
type ConfigProblem struct {
	Line    int    `json:"line,omitzero"` // from 1; absent if it is unknown
	Column  int    `json:"column,omitzero"`
	Message string `json:"message"`
}

// A Validation is the output of `patchbay gateway validate --json`.
type Validation struct {
	File     string          `json:"file"`
	Valid    bool            `json:"valid"`
	Servers  int             `json:"servers"`
	Errors   []ConfigProblem `json:"errors"`
	Warnings []ConfigProblem `json:"warnings"`

	plain []byte // of JSON; nil for other formats
}

// Text returns the problems in text.
func (v *Validation) Text(problem ConfigProblem, kind string) string {
	at := v.File
	if problem.Line > 0 {
		at += ":" + strconv.Itoa(problem.Line)
	}
	if problem.Column > 0 {
		at += ":" + strconv.Itoa(problem.Column)
	}
	return term.CleanLine(at + ": " + kind + problem.Message)
}

var positioned = regexp.MustCompile(`^line (\d+)(?:, column (\d+))?: (.*)$`)

// parsed returns a problem from a message that may begin with the file, the line and the column.
func (v *Validation) parsed(message string) ConfigProblem {
	message = strings.TrimPrefix(message, v.File+": ")
	m := positioned.FindStringSubmatch(message)
	if m == nil {
		return ConfigProblem{Message: message}
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	return ConfigProblem{line, column, m[3]}
}

// at returns a problem at a JSON pointer.
func (v *Validation) at(pointer, message string) ConfigProblem {
	if v.plain == nil {
		return ConfigProblem{Message: message}
	}
	return v.parsed(config.Position(v.plain, config.Find(v.plain, pointer)) + ": " + message)
}

// Check finds the problems of a file, of the form that its path says.
func (v *Validation) Check(text []byte) {
	f, err := configs.Parse(v.File, text)
	if err != nil {
		v.Errors = append(v.Errors, v.parsed(err.Error()))
		return
	}
	if plain, err := config.Plain(text); err == nil {
		v.plain = plain
	}
	v.Servers = len(f.Names())
	for _, name := range misspelt(f) {
		v.Warnings = append(v.Warnings, v.at("/"+name, misspeltText(name)))
	}
	var invalid []string // pointers
	if IsOwnForm(f.App) {
		invalid = v.checkSchema()
	}
	settings, err := gatewayconfig.Read(f.File)
	if err == nil && IsOwnForm(f.App) {
		err = v.checkPolicy(f, settings)
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			v.Errors = append(v.Errors, v.parsed(strings.TrimRight(line, "\n")))
		}
	}
	if err == nil {
		for _, w := range WarnRules(settings.Policy, f.Names()) {
			v.Warnings = append(v.Warnings, v.at(fmt.Sprintf("/patchbay/policy/rules/%d/when", w.rule), w.Text))
		}
	}
	for _, name := range f.Names() {
		v.checkServer(f, name, invalid)
	}
	slices.SortStableFunc(v.Errors, func(a, b ConfigProblem) int { return a.Line - b.Line })
	slices.SortStableFunc(v.Warnings, func(a, b ConfigProblem) int { return a.Line - b.Line })
}

// checkPolicy compiles the rules. It ignores the keys of the hook and of the webhook, because they
// may exist in another environment only.
func (v *Validation) checkPolicy(f *configs.File, s *gatewayconfig.Settings) error {
	missing := func(member, name string) {
		if _, set := os.LookupEnv(name); name != "" && !set {
			v.Warnings = append(v.Warnings, v.at("/patchbay/"+member, "the variable "+name+
				" is not set in this environment: without it, the gateway does not start"))
		}
	}
	if s.Policy != nil && s.Policy.Hook != nil {
		missing("policy/hook/secret", s.Policy.Hook.Secret)
	}
	if s.Webhook != nil {
		missing("webhook/secret", s.Webhook.Secret)
	}
	const anyKey = "a key that is long enough for signatures"
	_, err := celpolicy.New(f.File, &celpolicy.Options{Lookup: func(string) (string, bool) { return anyKey, true }})
	return err
}

// IsOwnForm reports whether the schema describes the files of an application.
func IsOwnForm(app string) bool {
	return slices.Contains([]string{"patchbay", "project", "vscode"}, app)
}

// checkSchema validates the file with the published schema, and returns the locations of the
// problems. It skips the settings, which [gatewayconfig.Read] checks.
func (v *Validation) checkSchema() (pointers []string) {
	s, err := jsonschema.Compile(gatewayconfig.Schema())
	if err == nil {
		err = s.Validate(v.plain)
	}
	var invalid *jsonschema.ValidationError
	if err == nil || !errors.As(err, &invalid) {
		return nil
	}
	for _, problem := range invalid.Problems {
		if problem.Path == "/patchbay" || strings.HasPrefix(problem.Path, "/patchbay/") {
			continue
		}
		pointers = append(pointers, problem.Path)
		v.Errors = append(v.Errors, v.at(problem.Path, strings.TrimPrefix(problem.Path, "/")+": "+problem.Text))
	}
	return pointers
}

// checkServer checks an entry, its variables and whether its command exists.
func (v *Validation) checkServer(f *configs.File, name string, invalid []string) {
	pointer := v.serverPointer(name)
	s, err := f.Server(name)
	if err != nil {
		known := func(at string) bool { return at == pointer || strings.HasPrefix(at, pointer+"/") }
		if !slices.ContainsFunc(invalid, known) {
			v.Errors = append(v.Errors, v.at(pointer, err.Error()))
		}
		return
	}
	warn := func(at, format string, args ...any) {
		v.Warnings = append(v.Warnings, v.at(at, fmt.Sprintf("server %q: ", name)+fmt.Sprintf(format, args...)))
	}
	if IsOwnForm(f.App) {
		for key := range s.Extra {
			if like := jsonschema.Nearest(key, entryMembers()); like != "" {
				warn(pointer+"/"+key, "unknown member %q (did you mean %q?)", key, like)
			}
		}
	}
	for _, variable := range unsetVariables(s) {
		warn(pointer, "the variable %s is not set in this environment, and has no default", variable)
	}
	if s.Type == config.TypeStdio && !strings.Contains(s.Command, "${") && s.Dir == "" && !s.Disabled {
		command := s.Command
		if f.Project && !filepath.IsAbs(command) && strings.ContainsAny(command, `/\`) {
			return
		}
		if _, err := exec.LookPath(command); err != nil {
			warn(pointer+"/command", "found no command %q", command)
		}
	}
}

// serverPointer returns the JSON pointer of a server.
func (v *Validation) serverPointer(name string) string {
	step := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	members := []string{"mcpServers", "servers", "context_servers", "mcp"}
	for key, value := range rawjson.Members(v.plain) {
		if _, has := rawjson.Get(value, name); has && slices.Contains(members, string(key)) {
			return "/" + string(key) + step
		}
	}
	return step
}

// entryMembers returns the members that the schema specifies for an entry.
func entryMembers() (names []string) {
	entry := []byte(gatewayconfig.Schema())
	for _, name := range []string{"properties", "mcpServers", "additionalProperties", "properties"} {
		entry, _ = rawjson.Get(entry, name)
	}
	for name := range rawjson.Members(entry) {
		names = append(names, string(name))
	}
	return names
}

var plainVariable = regexp.MustCompile(`\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}`)

// unsetVariables returns the variables of the environment that a server needs and that are not set.
func unsetVariables(s *config.Server) (names []string) {
	own := []string{"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"}
	for name := range configVariables(s) {
		if _, set := os.LookupEnv(name); !set && !slices.Contains(own, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func configVariables(s *config.Server) map[string]bool {
	all := map[string]bool{}
	texts := append([]string{s.Command, s.EnvFile, s.Dir, s.URL}, s.Args...)
	for _, values := range []map[string]string{s.Env, s.Header} {
		texts = slices.AppendSeq(texts, maps.Values(values))
	}
	for _, text := range texts {
		for _, m := range plainVariable.FindAllStringSubmatch(strings.ReplaceAll(text, "${$}{", ""), -1) {
			all[m[1]] = true
		}
	}
	return all
}
