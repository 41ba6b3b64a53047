package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// Settings parses the member patchbay, and returns the defaults if the file does not contain it.
// Settings contain no variables. The error contains the file, the line, the column and the path of
// each invalid member, up to five. Unknown members and settings of a server that is not in the file
// are errors.
//
// The author of a project file also wrote its settings: a [TrustStore] records the settings of a
// server together with the server, and other settings must not be used unless the user has named
// the file.
func (f *File) Settings() (*Settings, error) {
	r := &settingsReader{file: f, text: f.Extra["patchbay"]}
	if r.text == nil {
		r.text = []byte("{}")
	}
	s := r.read()
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	return s, nil
}

// A settingsReader reads the member patchbay of a file.
type settingsReader struct {
	file     *File
	text     []byte
	problems []error
}

// problem records that the member at a JSON pointer within settings is invalid.
func (r *settingsReader) problem(pointer, format string, args ...any) {
	const most = 5 // like the errors of the schema
	if len(r.problems) >= most {
		return
	}
	pointer = "/patchbay" + pointer
	at := ""
	if text := r.file.text; text != nil {
		if plain, err := Plain(r.file.Source); err == nil {
			text = plain
		}
		at = Position(text, Find(text, pointer)) + ": "
	}
	if r.file.Path != "" {
		at = r.file.Path + ": " + at
	}
	r.problems = append(r.problems, fmt.Errorf("%s%s: %s", at, memberPath(pointer), fmt.Sprintf(format, args...)))
}

// memberPath returns a JSON pointer in the form a.b[0], with names that are not plain in quotes.
func memberPath(pointer string) string {
	var b strings.Builder
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		_, err := strconv.Atoi(step)
		switch {
		case err == nil:
			b.WriteString("[" + step + "]")
		case !plainMember.MatchString(step):
			fmt.Fprintf(&b, "[%.64q]", step)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

var plainMember = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// pointer returns a JSON pointer.
func pointer(steps ...string) string {
	var b strings.Builder
	for _, step := range steps {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	return b.String()
}

// read validates the settings with their schema, decodes them, and checks rules that no schema can
// state.
func (r *settingsReader) read() *Settings {
	if err := settingsSchema().Validate(r.text); err != nil {
		r.addProblems(err)
		return nil
	}
	s := &Settings{Approve: []string{"client", "console"}, Profiles: map[string]*Profile{}}
	invalid := map[string]error{}
	err := schema.Decode(settingsSchema().ApplyDefaults(r.withAbsent()), s, json.WithUnmarshalers(json.JoinUnmarshalers(
		decodeText[*Duration](invalid), decodeText[*Size](invalid), decodeText[*Rate](invalid))))
	if err != nil {
		r.addProblems(err)
		return nil
	}
	for _, at := range slices.Sorted(maps.Keys(invalid)) {
		r.problem(at, "%v", invalid[at])
	}
	if len(invalid) == 0 {
		r.check(s)
	}
	return s
}

// decodeText returns a function that decodes the text of a value. It adds errors to invalid, by the JSON
// pointer of the value, so that the caller learns all of them.
func decodeText[T encoding.TextUnmarshaler](invalid map[string]error) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, to T) error {
		text, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := to.UnmarshalText([]byte(text.String())); err != nil {
			invalid[string(d.StackPointer())] = err
		}
		return nil
	})
}

func (r *settingsReader) addProblems(err error) {
	var invalid *schema.ValidationError
	if !errors.As(err, &invalid) {
		r.problem("", "%v", err)
		return
	}
	for _, p := range invalid.Problems {
		r.problem(p.Path, "%s", settingWords.Replace(p.Text))
	}
}

// withAbsent returns the settings with the objects whose members have defaults.
func (r *settingsReader) withAbsent() []byte {
	text := r.text
	for _, name := range []string{"names", "tools", "limits"} {
		if _, has := jsonscan.Get(text, name); !has {
			text = jsonscan.WithMember(text, name, []byte("{}"))
		}
	}
	servers, has := jsonscan.Get(text, "servers")
	if !has {
		servers = []byte("{}")
	}
	for _, name := range r.file.names {
		if _, has := jsonscan.Get(servers, name); !has {
			servers = jsonscan.WithMember(servers, name, []byte("{}"))
		}
	}
	return jsonscan.WithMember(text, "servers", servers)
}

// has reports whether the settings contain a member.
func (r *settingsReader) has(path ...string) bool {
	value := r.text
	for _, name := range path {
		var has bool
		if value, has = jsonscan.Get(value, name); !has {
			return false
		}
	}
	return true
}

// check completes the settings and checks them.
func (r *settingsReader) check(s *Settings) {
	r.checkGateway(s)
	r.callerLimits(&s.Limits)
	for _, name := range slices.Sorted(maps.Keys(s.Servers)) {
		if !r.knows(name, "servers", name) {
			continue
		}
		r.server(name, s.Servers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Profiles)) {
		for i, server := range s.Profiles[name].Servers {
			r.knows(server, "profiles", name, "servers", strconv.Itoa(i))
		}
	}
}

// atLeast checks a size; zero means that it is absent.
func (r *settingsReader) atLeast(at string, got, least Size) {
	if got > 0 && got < least {
		r.problem(at, "got %q, want at least %s and less than 8388608TiB", got, least)
	}
}

// positive checks a duration that must not be zero.
func (r *settingsReader) positive(at string, d Duration) {
	if d == 0 {
		r.problem(at, "%v", durationError("0s"))
	}
}

// knows reports whether the file contains a server to which the settings refer at a place.
func (r *settingsReader) knows(server string, at ...string) bool {
	if r.file.Has(server) {
		return true
	}
	text := fmt.Sprintf("unknown server %.64q", server)
	if like := schema.Nearest(server, r.file.names); like != "" {
		text += fmt.Sprintf(" (did you mean %.64q?)", like)
	}
	r.problem(pointer(at...), "%s: settings are for servers of the same file", text)
	return false
}

func (r *settingsReader) server(name string, s *ServerSettings) {
	at := func(member ...string) string { return pointer(append([]string{"servers", name}, member...)...) }
	s.Share = cmp.Or(s.Share, ShareCaller)
	r.serverLimits(name, s)
	r.positive(at("timeout"), s.Timeout)
	r.positive(at("maxTimeout"), s.MaxTimeout)
	r.positive(at("startTimeout"), s.StartTimeout)
	r.positive(at("queueTimeout"), s.QueueTimeout)
	r.positive(at("breaker", "open"), s.Breaker.Open)
	if s.Timeout > s.MaxTimeout && s.MaxTimeout > 0 {
		r.problem(at("timeout"), "got %v, want at most maxTimeout, %v", s.Timeout, s.MaxTimeout)
	}
	for i, text := range s.Roots.URIs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.Fragment != "" {
			r.problem(at("roots", strconv.Itoa(i)), "got %.64q, want a URI such as \"file:///srv/app\"", text)
		}
	}
	r.checkRename(s.Rename, at)
	r.credentials(name, s, at)
	r.addEntry(name, s, at)
}

// addEntry completes the settings from the entry of the server. [File.Server] reports an invalid
// entry.
func (r *settingsReader) addEntry(name string, s *ServerSettings, at func(member ...string) string) {
	entry, err := r.file.Server(name)
	if err != nil {
		return
	}
	if s.Allow == nil {
		s.Allow = entry.AllowedTools
	}
	s.Deny = slices.Concat(s.Deny, entry.ExcludedTools)
	if entry.Type != TypeStdio && s.Limits != (Limits{}) {
		r.problem(at("limits"), "the server is a URL: limits are for commands")
	}
}

var publicName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkRename checks that new names are names, and different.
func (r *settingsReader) checkRename(rename map[string]string, at func(member ...string) string) {
	used := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(rename)) {
		to := rename[name]
		switch other, isUsed := used[to]; {
		case !publicName.MatchString(to):
			r.problem(at("rename", name), "got %.64q, want 1 to 64 of the characters A-Z, a-z, 0-9, _ and -", to)
		case isUsed:
			r.problem(at("rename", name), "got %.64q, which is also the name of %.64q: want different names", to, other)
		}
		used[to] = name
	}
}
