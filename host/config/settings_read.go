package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// Settings parses the member patchbay, and returns the defaults if the file has none. Settings have
// no variables. The error has the file, the line, the column and the path of each invalid member, up
// to five. Unknown members are errors, and so are settings of a server that the file does not have.
//
// Settings of a project file are of its author, like its servers: a [TrustStore] records those of a
// server with it, and the others must not be used unless the user has named the file.
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
	const most = 5 // like those of the schema
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

func (r *settingsReader) read() *Settings {
	if err := settingsSchema().Validate(r.text); err != nil {
		r.addProblems(err)
		return nil
	}
	var given settingsJSON
	if err := schema.Decode(settingsSchema().ApplyDefaults(r.withAbsent()), &given); err != nil {
		r.addProblems(err)
		return nil
	}
	return r.convert(&given)
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

func (r *settingsReader) convert(given *settingsJSON) *Settings {
	s := &Settings{Listen: given.Listen, Names: Names(given.Names), Tools: ToolListing(given.Tools),
		Servers: map[string]*ServerSettings{}, Profiles: map[string]*Profile{}}
	s.Audit, s.Auth = r.audit(given.Audit), r.auth(given.Auth, given.Profiles)
	s.PublicURL, s.AllowedHosts = r.publicURL(given.PublicURL), r.hosts(given.AllowedHosts)
	s.Limits = r.callerLimits(&given.Limits)
	s.Connect = Connect(given.Connect)
	if !isAddress(s.Listen) {
		r.problem("/listen", "got %.64q, want host:port, such as \"127.0.0.1:7777\"", s.Listen)
	}
	s.Ops, s.Pprof = r.ops(given.Ops, given.Listen, given.Pprof), given.Pprof
	s.TrustTraceContext = given.TrustTraceContext
	s.Policy, s.Approve = r.policy(given.Policy), given.Approve
	if s.Approve == nil {
		s.Approve = []string{"client", "console"}
	}
	if given.Webhook != nil {
		w := Webhook(*given.Webhook)
		s.Webhook = &w
		r.decider("/webhook/url", w.URL)
	} else if slices.Contains(s.Approve, "webhook") {
		r.problem("/approve", "has \"webhook\", and the settings have no member webhook")
	}
	for _, name := range slices.Sorted(maps.Keys(given.Servers)) {
		if !r.knows(name, "servers", name) {
			continue
		}
		s.Servers[name] = r.server(name, given.Servers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(given.Profiles)) {
		p := Profile(given.Profiles[name])
		for i, server := range p.Servers {
			r.knows(server, "profiles", name, "servers", strconv.Itoa(i))
		}
		s.Profiles[name] = &p
	}
	return s
}

// knows reports whether the file has a server, which settings refer to at a place.
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

func (r *settingsReader) server(name string, given serverJSON) *ServerSettings {
	at := func(member ...string) string { return pointer(append([]string{"servers", name}, member...)...) }
	s := &ServerSettings{Share: cmp.Or(given.Share, ShareCaller), Era: given.Era, Allow: given.Allow, Deny: given.Deny,
		Rename: given.Rename, Describe: given.Describe, HideArgs: given.HideArgs,
		Validate: given.Validate, Methods: given.Methods, Trust: given.Trust, TrustResources: given.TrustResources,
		ForwardBaggage: given.ForwardBaggage}
	s.Timeout = r.duration(given.Timeout, at("timeout"))
	s.MaxTimeout = r.duration(given.MaxTimeout, at("maxTimeout"))
	s.StartTimeout = r.duration(given.StartTimeout, at("startTimeout"))
	if given.Idle != "0s" {
		s.Idle = r.duration(given.Idle, at("idle"))
	}
	if s.Timeout > s.MaxTimeout && s.MaxTimeout > 0 {
		r.problem(at("timeout"), "got %v, want at most maxTimeout, %v", s.Timeout, s.MaxTimeout)
	}
	s.Roots = r.roots(given.Roots, at)
	s.Limits = r.limits(&given.Limits, at("limits"))
	r.serverLimits(name, s, &given, at)
	r.checkRename(given.Rename, at)
	r.credentials(name, &given, s)
	r.addEntry(name, s, at)
	return s
}

// addEntry adds what depends on the entry of the server. An invalid entry is an error of
// [File.Server].
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

func (r *settingsReader) duration(text, pointer string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.problem(pointer, "got %.64q, want a duration of more than 0 and at most %v", text,
			time.Duration(math.MaxInt64).Truncate(time.Hour))
	}
	return d
}

func (r *settingsReader) roots(value any, at func(member ...string) string) (out Roots) {
	switch value := value.(type) {
	case string:
		out.Mode = RootsMode(value)
	case []any:
		out.Mode = RootsList
		for i, element := range value {
			text, _ := element.(string) // the schema allows no other type
			u, err := url.Parse(text)
			if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.Fragment != "" {
				r.problem(at("roots", strconv.Itoa(i)), "got %.64q, want a URI such as \"file:///srv/app\"", text)
			}
			out.URIs = append(out.URIs, text)
		}
	}
	return out
}

// sizeUnits are the units of sizes, in bytes.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

func (r *settingsReader) limits(given *limitsJSON, at string) Limits {
	l := Limits{Processes: given.Processes, OpenFiles: given.OpenFiles, CPU: given.CPU, BestEffort: given.BestEffort}
	const least = 1 << 20 // no server runs in less
	l.Memory = r.size(given.Memory, least, at+"/memory")
	return l
}

// size returns the bytes of a size, zero for an absent one.
func (r *settingsReader) size(text string, least int64, at string) (bytes int64) {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.name)
		if !ok || unit.bytes == 1 && strings.HasSuffix(text, "iB") {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if bytes = n * unit.bytes; err != nil || n > math.MaxInt64/unit.bytes || bytes < least {
			r.problem(at, "got %q, want at least %s and less than 8388608TiB", text, Size(least))
		}
		break
	}
	return bytes
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
