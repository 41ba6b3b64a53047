// Package values lists the configuration of a server, with the origin of each value and without
// secrets.
package values

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Origins of values that no file contains.
const (
	fromCommandLine = "command line"
	fromProgram     = "this program"
	fromDefault     = "default"
)

// Of returns the values of the entry of a server and of its settings. file is the configuration in
// force. It returns an error for a server that the configuration lacks, and for invalid settings.
func Of(c *hosting.Config, file *config.File, name string) ([]gateway.ServerValue, error) {
	l := &list{origin: fromCommandLine}
	switch fixed := c.Fixed[name]; {
	case c.InProcess[name] != nil:
		l.origin = fromProgram
		l.add("type", "in this process")
	case fixed != nil:
		l.target(fixed)
	default:
		entry, err := file.Server(name)
		if err != nil {
			return nil, err
		}
		l.origin = "configuration" // of a server that a reload added
		for i := range c.Servers {
			if e := &c.Servers[i]; e.Name == name {
				l.origin = e.File.Path
			}
		}
		l.entry(entry)
	}
	settings, err := file.Settings()
	if err != nil {
		return l.all, err
	}
	l.settings(settings.Servers[name], setIn(file, name), file.Path)
	return l.all, nil
}

// Files returns the configuration files with the names of their servers, without their texts. named
// is the file that the command line names, or "".
func Files(c *hosting.Config, named string) (all []gateway.ConfigFile) {
	for f, err := range configs.Files(named) {
		if err == nil { // else the program does not use it
			all = append(all, gateway.ConfigFile{Path: f.Path, Servers: c.NamesFrom(f.Path)})
		}
	}
	return all
}

// setIn returns the names of the settings of a server that a file contains.
func setIn(file *config.File, name string) map[string]json.RawMessage {
	var section struct {
		Servers map[string]map[string]json.RawMessage `json:"servers"`
	}
	_ = json.Unmarshal(file.Extra["patchbay"], &section) // Settings reports the error
	return section.Servers[name]
}

// A list collects values of one origin.
type list struct {
	origin string
	all    []gateway.ServerValue
}

func (l *list) add(name, value string) {
	if value != "" {
		l.all = append(l.all, gateway.ServerValue{Name: name, Value: value, Origin: l.origin})
	}
}

// words adds a list of words, such as a command line.
func (l *list) words(name string, words []string) {
	if len(words) > 0 {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(words) // never fails for strings
		l.add(name, strings.TrimSpace(text.String()))
	}
}

// texts adds variables or headers, whose values may be secret.
func (l *list) texts(name string, all map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		l.add(name+"."+key, shown(all[key]))
	}
}

// reference matches a variable of a configuration without a default, which may be a secret.
var reference = regexp.MustCompile(`^\$\{(env:|input:)?[A-Za-z0-9_.-]+\}$`)

// shown returns the text to show for a value that may be secret: a reference to a variable is
// shown, and any other text is hidden.
func shown(value string) string {
	if value == "" || reference.MatchString(value) {
		return value
	}
	return target.Hidden
}

// address returns a URL of an entry without its secrets. A URL may consist of variables.
func address(text string) string {
	if _, err := url.Parse(text); err != nil && strings.Contains(text, "${") {
		return target.HideKeys(text)
	}
	return target.PublicURL(text)
}

func (l *list) target(t *target.Target) {
	if t.URL != "" {
		l.add("url", target.PublicURL(t.URL))
	}
	l.words("command", target.PublicArguments(t.Command))
	l.add("cwd", t.Directory)
	l.texts("headers", firstValues(t.Header))
	for _, pair := range t.Environment {
		name, _, _ := strings.Cut(pair, "=")
		l.add("env."+name, target.Hidden)
	}
}

func firstValues(h http.Header) map[string]string {
	all := map[string]string{}
	for name := range h {
		all[name] = h.Get(name)
	}
	return all
}

func (l *list) entry(s *config.Server) {
	l.add("type", string(s.Type))
	l.add("command", target.HideKeys(s.Command))
	l.words("args", target.PublicArguments(s.Args))
	l.texts("env", s.Env)
	l.add("envFile", s.EnvFile)
	l.add("cwd", s.Dir)
	if s.URL != "" {
		l.add("url", address(s.URL))
	}
	l.texts("headers", s.Header)
	l.words("headersHelper", target.PublicArguments(strings.Fields(s.HeaderCommand)))
	l.words("allowedTools", s.AllowedTools)
	l.words("excludedTools", s.ExcludedTools)
}

// settings adds the settings in force. Names that set contains come from the file, and the other
// names are defaults.
func (l *list) settings(s *config.ServerSettings, set map[string]json.RawMessage, file string) {
	if s == nil {
		return
	}
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		raw, isSet := set[name]
		switch {
		case isSet:
			l.origin = file
			l.add(name, setting(raw))
		case !v.Field(i).IsZero():
			l.origin = fromDefault
			l.add(name, fmt.Sprintf("%+v", v.Field(i).Interface()))
		}
	}
}

// setting returns the text of a setting of a file. Settings contain no secrets, but somebody may
// have written a key in the wrong place.
func setting(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return target.HideKeys(text)
}
