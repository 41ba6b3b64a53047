package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// Settings returns the settings of the host in the member patchbay, as [File.Decode] does. It ignores
// further members, which belong to the program that serves the host, such as the gateway: that program
// must report their mistakes. A member whose name resembles a setting of the host is an error.
func (f *File) Settings() (*Settings, error) {
	s, text := new(Settings), f.Extra["patchbay"]
	members, _ := jsonscan.Get(schemaOf(s).JSON(), "properties")
	var known []string
	for name := range jsonscan.Members(members) {
		known = append(known, string(name))
	}
	for key := range jsonscan.Members(text) {
		if name := string(key); !slices.Contains(known, name) && schema.Nearest(name, known) == "" {
			text = jsonscan.Without(text, name)
		}
	}
	if err := f.decode(text, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Decode decodes the member patchbay into s; an absent member means the defaults. Settings contain
// no variables. The error contains the file, the line, the column and the path of each invalid member,
// up to five. Unknown members and settings of a server that is not in the file are errors.
//
// The author of a project file also wrote its settings: a [TrustStore] records the settings of a
// server together with the server, and other settings must not be used unless the user has named
// the file.
func (f *File) Decode(s Section) error { return f.decode(f.Extra["patchbay"], s) }

func (f *File) decode(text []byte, s Section) error {
	p := &Problems{file: f, text: text}
	if p.text == nil {
		p.text = []byte("{}")
	}
	p.read(s)
	return errors.Join(p.all...)
}

// Add adds a problem of the member at a JSON pointer within the settings; see [Pointer]. Problems after
// the fifth are ignored.
func (p *Problems) Add(pointer, format string, args ...any) {
	const most = 5 // like the errors of the schema
	if len(p.all) >= most {
		return
	}
	pointer = "/patchbay" + pointer
	at := ""
	if text := p.file.text; text != nil {
		if plain, err := Plain(p.file.Source); err == nil {
			text = plain
		}
		at = Position(text, Find(text, pointer)) + ": "
	}
	if p.file.Path != "" {
		at = p.file.Path + ": " + at
	}
	p.all = append(p.all, fmt.Errorf("%s%s: %s", at, memberPath(pointer), fmt.Sprintf(format, args...)))
}

// memberPath returns a JSON pointer in the form a.b[0], with names that are not plain in quotes.
func memberPath(pointer string) string {
	var b strings.Builder
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = pointerUnescapes.Replace(step)
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

// read validates the settings with their schema, decodes them, and checks rules that no schema can
// state.
func (p *Problems) read(s Section) {
	sc := schemaOf(s)
	if err := sc.Validate(p.text); err != nil {
		p.addProblems(err)
		return
	}
	invalid := map[string]error{}
	err := schema.Decode(sc.ApplyDefaults(p.withAbsent()), s, json.WithUnmarshalers(json.JoinUnmarshalers(
		decodeText[*Duration](invalid), decodeText[*Size](invalid), decodeText[*Rate](invalid))))
	if err != nil {
		p.addProblems(err)
		return
	}
	for _, at := range slices.Sorted(maps.Keys(invalid)) {
		p.Add(at, "%v", invalid[at])
	}
	if len(invalid) == 0 {
		s.Check(p)
	}
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

func (p *Problems) addProblems(err error) {
	var invalid *schema.ValidationError
	if !errors.As(err, &invalid) {
		p.Add("", "%v", err)
		return
	}
	for _, problem := range invalid.Problems {
		p.Add(problem.Path, "%s", settingWords.Replace(problem.Text))
	}
}

// withAbsent returns the settings with the objects whose members have defaults.
func (p *Problems) withAbsent() []byte {
	text := p.text
	for _, name := range []string{"names", "tools", "limits"} {
		if _, has := jsonscan.Get(text, name); !has {
			text = jsonscan.WithMember(text, name, []byte("{}"))
		}
	}
	servers, has := jsonscan.Get(text, "servers")
	if !has {
		servers = []byte("{}")
	}
	for _, name := range p.file.names {
		if _, has := jsonscan.Get(servers, name); !has {
			servers = jsonscan.WithMember(servers, name, []byte("{}"))
		}
	}
	return jsonscan.WithMember(text, "servers", servers)
}

// has reports whether the settings contain a member.
func (p *Problems) has(path ...string) bool {
	value, has := p.text, true
	for _, name := range path {
		value, has = jsonscan.Get(value, name)
	}
	return has
}

// Check completes and checks the settings. [File.Settings] and [File.Decode] call it.
func (s *Settings) Check(p *Problems) {
	if s.Profiles == nil {
		s.Profiles = map[string]*Profile{}
	}
	p.callerLimits(&s.Limits)
	for _, name := range slices.Sorted(maps.Keys(s.Servers)) {
		if !p.knows(name, "servers", name) {
			continue
		}
		p.server(name, s.Servers[name])
	}
	p.sandboxes(s.Servers)
	for _, name := range slices.Sorted(maps.Keys(s.Profiles)) {
		for i, server := range s.Profiles[name].Servers {
			p.knows(server, "profiles", name, "servers", strconv.Itoa(i))
		}
	}
}

// AtLeast adds a problem if a size is too small; zero means that the member is absent.
func (p *Problems) AtLeast(at string, got, least Size) {
	if got > 0 && got < least {
		p.Add(at, "got %q, want at least %s and less than 8388608TiB", got, least)
	}
}

// Positive adds a problem if a duration is zero.
func (p *Problems) Positive(at string, d Duration) {
	if d == 0 {
		p.Add(at, "%v", durationError("0s"))
	}
}

// Path returns a path relative to the folder of the file.
func (p *Problems) Path(name string) string {
	if name == "" || filepath.IsAbs(name) || p.file.Path == "" {
		return name
	}
	return filepath.Join(filepath.Dir(p.file.Path), name)
}

// knows reports whether the file contains a server to which the settings refer at a place.
func (p *Problems) knows(server string, at ...string) bool {
	if p.file.Has(server) {
		return true
	}
	text := fmt.Sprintf("unknown server %.64q", server)
	if like := schema.Nearest(server, p.file.names); like != "" {
		text += fmt.Sprintf(" (did you mean %.64q?)", like)
	}
	p.Add(Pointer(at...), "%s: settings are for servers of the same file", text)
	return false
}

func (p *Problems) server(name string, s *ServerSettings) {
	at := func(member ...string) string { return Pointer(append([]string{"servers", name}, member...)...) }
	s.Share = cmp.Or(s.Share, ShareCaller)
	p.serverLimits(name, s)
	p.Positive(at("timeout"), s.Timeout)
	p.Positive(at("maxTimeout"), s.MaxTimeout)
	p.Positive(at("startTimeout"), s.StartTimeout)
	p.Positive(at("queueTimeout"), s.QueueTimeout)
	p.Positive(at("breaker", "open"), s.Breaker.Open)
	if s.Timeout > s.MaxTimeout && s.MaxTimeout > 0 {
		p.Add(at("timeout"), "got %v, want at most maxTimeout, %v", s.Timeout, s.MaxTimeout)
	}
	for i, text := range s.Roots.URIs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.Fragment != "" {
			p.Add(at("roots", strconv.Itoa(i)), "got %.64q, want a URI such as \"file:///srv/app\"", text)
		}
	}
	p.sandbox(s.Sandbox, at)
	p.checkRename(s.Rename, at)
	p.credentials(name, s, at)
	p.addEntry(name, s, at)
}

// addEntry completes the settings from the entry of the server. [File.Server] reports an invalid
// entry.
func (p *Problems) addEntry(name string, s *ServerSettings, at func(member ...string) string) {
	entry, err := p.file.Server(name)
	if err != nil {
		return
	}
	if s.Allow == nil {
		s.Allow = entry.AllowedTools
	}
	s.Deny = slices.Concat(s.Deny, entry.ExcludedTools)
	if entry.Type != TypeStdio && s.Limits != (Limits{}) {
		p.Add(at("limits"), "the server is a URL: limits are for commands")
	}
	if entry.Type != TypeStdio && s.Sandbox != nil {
		p.Add(at("sandbox"), "the server is a URL: a sandbox is for commands")
	}
}

var publicName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// checkRename checks that new names are names, and different.
func (p *Problems) checkRename(rename map[string]string, at func(member ...string) string) {
	used := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(rename)) {
		to := rename[name]
		switch other, isUsed := used[to]; {
		case !publicName.MatchString(to):
			p.Add(at("rename", name), "got %.64q, want 1 to 64 of the characters A-Z, a-z, 0-9, _ and -", to)
		case isUsed:
			p.Add(at("rename", name), "got %.64q, which is also the name of %.64q: want different names", to, other)
		}
		used[to] = name
	}
}

// SettingError returns an error about a member of the settings, with the file, the line and the column.
// at is the path of the member, and offset the number of bytes from the start of its text.
func (f *File) SettingError(at []string, offset int, text string) error {
	p := &Problems{file: f}
	place := Pointer(at...)
	if f.text == nil || offset == 0 {
		p.Add(place, "%s", text)
		return p.all[0]
	}
	plain := f.text
	if source, err := Plain(f.Source); err == nil {
		plain = source
	}
	begin := Find(plain, "/patchbay"+place) // of the name of the member
	if begin >= 0 {
		_, value, _ := strings.Cut(string(plain[begin:]), ":")
		begin = len(plain) - len(strings.TrimLeft(value, " \t\r\n"))
	}
	if begin < 0 || begin+1+offset > len(plain) || strings.ContainsRune(string(plain[begin+1:begin+1+offset]), '\\') {
		p.Add(place, "%s", text) // escapes change offsets
		return p.all[0]
	}
	where := Position(plain, begin+1+offset)
	if f.Path != "" {
		where = f.Path + ": " + where
	}
	return fmt.Errorf("%s: %s: %s", where, memberPath("/patchbay"+place), text)
}
