package skills

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/visible"
)

// A Skill is a server's description of a skill, with all that is needed to show it, to ask the user
// for consent, and to verify each of its files. [Get] returns the current description. A Skill can
// be stored as JSON, in the form of the protocol; decoding validates it again.
//
// A skill is identified by its server and URI together. A Skill must not be modified.
//
// Spec: skills.mdx, Skill Entries.
type Skill struct {
	// URI is the URI of the skill's SKILL.md.
	URI string
	// Name and Description are the required fields of the frontmatter. Name is the last path
	// segment of the skill's directory; other skills may use the same name.
	Name, Description string
	// Frontmatter is the frontmatter of SKILL.md as a JSON object.
	Frontmatter json.RawMessage
	// Files are all files of the skill, including SKILL.md; empty if the skill is dynamic.
	Files []File
	// Dynamic reports whether the server generates the files when they are read, so that they
	// cannot be verified.
	Dynamic bool
}

// A File is a file of a [Skill].
type File struct {
	// Path is the path relative to the skill's directory, with slashes. It is always inside the
	// directory, and contains no control or bidirectional characters, but may be
	// ".git/hooks/pre-commit", "-rf" or "CON". A host that writes files to disk should use an
	// [os.Root] of a directory for this skill alone, and names from [filepath.Localize], and skip
	// paths with a segment that begins with a dot. Paths that differ in case only may be the same
	// file on disk.
	Path   string
	URI    string
	Digest string // "sha256:" and 64 lower-case hexadecimal digits
	Size   int64  // in bytes
}

// The types of the protocol.
type (
	wireSkill struct {
		URI         string          `json:"uri"`
		Frontmatter json.RawMessage `json:"frontmatter"`
		Resources   json.RawMessage `json:"resources"`
	}
	wireFile struct {
		URI    string `json:"uri"`
		Digest string `json:"digest"`
		Size   *int64 `json:"size"`
	}
)

// dynamic is the value of resources for a dynamic skill.
const dynamic = `"dynamic"`

// MarshalJSON encodes the skill in the form of the protocol.
func (s *Skill) MarshalJSON() ([]byte, error) {
	w := wireSkill{URI: s.URI, Frontmatter: s.Frontmatter, Resources: json.RawMessage(dynamic)}
	if !s.Dynamic {
		files := make([]wireFile, len(s.Files))
		for i, f := range s.Files {
			files[i] = wireFile{f.URI, f.Digest, &f.Size}
		}
		var err error
		if w.Resources, err = jsonv2.Marshal(files); err != nil {
			return nil, err
		}
	}
	return jsonv2.Marshal(w)
}

// UnmarshalJSON decodes and validates a skill in the form of the protocol. The error is an
// [ErrInvalidEntry] if the name is not that of the directory, or if a file is listed twice, is
// outside the directory, or lacks a valid digest and size.
func (s *Skill) UnmarshalJSON(raw []byte) error {
	parsed, err := parseSkill(raw)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidEntry, err)
	}
	*s = *parsed
	return nil
}

func parseSkill(raw []byte) (*Skill, error) {
	var w wireSkill
	if err := jsonv2.Unmarshal(raw, &w); err != nil {
		return nil, err
	}
	root, last, err := rootOf(w.URI)
	if err != nil {
		return nil, err
	}
	s := &Skill{URI: w.URI, Frontmatter: w.Frontmatter}
	var front struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if jsontext.Value(w.Frontmatter).Kind() != '{' {
		return nil, errors.New("frontmatter is not an object")
	}
	if err := jsonv2.Unmarshal(w.Frontmatter, &front); err != nil {
		return nil, fmt.Errorf("frontmatter: %w", err)
	}
	s.Name, s.Description = front.Name, front.Description
	switch err := checkName(s.Name); {
	case err != nil:
		return nil, err
	case s.Name != last:
		return nil, fmt.Errorf("the name is %q, but that of the directory is %.64q", s.Name, last)
	case strings.TrimSpace(s.Description) == "":
		return nil, errors.New("frontmatter has no description")
	}
	if string(w.Resources) == dynamic {
		s.Dynamic = true
		return s, nil
	}
	s.Files, err = parseFiles(root, w.URI, w.Resources)
	return s, err
}

func parseFiles(root, uri string, raw json.RawMessage) ([]File, error) {
	if jsontext.Value(raw).Kind() != '[' {
		return nil, errors.New(`resources is neither an array nor "dynamic"`)
	}
	var list []wireFile
	if err := jsonv2.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	files := make([]File, len(list))
	seen := make(map[string]bool, len(list))
	for i, w := range list {
		path, err := within(root, w.URI)
		digits, ok := strings.CutPrefix(w.Digest, "sha256:")
		switch {
		case err != nil:
			return nil, err
		case seen[path]:
			return nil, fmt.Errorf("the file %.128q is listed twice", path)
		case !ok || len(digits) != hex.EncodedLen(sha256.Size) || strings.Trim(digits, "0123456789abcdef") != "":
			return nil, fmt.Errorf("invalid digest %.128q of %.128q: want sha256: and 64 lower-case hexadecimal digits",
				w.Digest, path)
		case w.Size == nil || *w.Size < 0:
			return nil, fmt.Errorf("the file %.128q has no size", path)
		}
		seen[path] = true
		files[i] = File{Path: path, URI: w.URI, Digest: w.Digest, Size: *w.Size}
	}
	if i := slices.IndexFunc(files, func(f File) bool { return f.URI == uri }); i < 0 {
		return nil, fmt.Errorf("resources does not list %s", skillFile)
	}
	return files, nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Fingerprint returns a digest of the skill's URI and all of its files. It changes when a file is
// changed, added or removed. A user's consent to a skill of this server is valid for one
// fingerprint only. It is empty for a dynamic skill, for which consent cannot be stored.
//
// Spec: skills.mdx, Security Considerations, Content-bound approval.
func (s *Skill) Fingerprint() string {
	if s.Dynamic {
		return ""
	}
	files := slices.SortedFunc(slices.Values(s.Files), func(a, b File) int { return cmp.Compare(a.URI, b.URI) })
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", s.URI)
	for _, f := range files {
		fmt.Fprintf(h, "%q %s %d\n", f.URI, f.Digest, f.Size)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func (s *Skill) checkLimits() error {
	if len(s.Files) > MaxFiles {
		return fmt.Errorf("%w: %d files, want at most %d", ErrTooLarge, len(s.Files), MaxFiles)
	}
	remaining := int64(MaxBytes)
	for _, f := range s.Files {
		if remaining -= f.Size; remaining < 0 {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxBytes)
		}
	}
	return nil
}

// checkOwn validates the frontmatter of a skill that is served. Clients are less strict. Spec:
// Agent Skills, Frontmatter; skills.mdx, Frontmatter.
func (s *Skill) checkOwn() error {
	const maxDescription, maxCompatibility = 1024, 500
	const reserved = "io.modelcontextprotocol/"
	var front struct {
		License       string                     `json:"license"`
		Compatibility string                     `json:"compatibility"`
		Metadata      map[string]json.RawMessage `json:"metadata"`
	}
	if err := jsonv2.Unmarshal(s.Frontmatter, &front); err != nil {
		return fmt.Errorf("the frontmatter: %w", err)
	}
	if n := utf8.RuneCountInString(s.Description); n > maxDescription {
		return fmt.Errorf("the description has %d characters, want at most %d", n, maxDescription)
	}
	if n := utf8.RuneCountInString(front.Compatibility); n > maxCompatibility {
		return fmt.Errorf("compatibility has %d characters, want at most %d", n, maxCompatibility)
	}
	for key := range front.Metadata {
		if strings.HasPrefix(key, reserved) {
			return fmt.Errorf("the key %q of metadata is reserved for extensions of the protocol", key)
		}
	}
	return nil
}

// maxURI is the largest length of a URI, in bytes: that of resources.
const maxURI = 8 << 10

// escapePath escapes a path for a URI. It keeps unreserved characters only, because the path may
// begin in the authority. Spec: RFC 3986, sections 2.3 and 3.2.2.
func escapePath(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// rootOf returns the URI of the directory of a SKILL.md, and the last path segment of that URI.
func rootOf(uri string) (root, name string, err error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	switch {
	case len(uri) > maxURI:
		return "", "", fmt.Errorf("the URI has %d bytes, want at most %d", len(uri), maxURI)
	case !ok || scheme == "" || strings.ContainsAny(uri, "?#"):
		return "", "", fmt.Errorf("invalid URI %.128q: want one of a skill, such as skill://name/%s", uri, skillFile)
	}
	path, ok := strings.CutSuffix(rest, "/"+skillFile)
	if !ok {
		return "", "", fmt.Errorf("the URI %.128q does not end with /%s", uri, skillFile)
	}
	return strings.TrimSuffix(uri, "/"+skillFile), path[strings.LastIndexByte(path, '/')+1:], nil
}

// within returns the path of a file relative to the directory of a skill. The URI comes from the
// server and must not be trusted: the path may be used on disk, so it must be inside the directory
// on every system.
func within(root, uri string) (string, error) {
	escaped, ok := strings.CutPrefix(uri, root+"/")
	if !ok || len(uri) > maxURI || strings.ContainsAny(escaped, "?#") {
		return "", fmt.Errorf("the URI %.128q is not in the directory %.128q", uri, root)
	}
	parts := strings.Split(escaped, "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return "", fmt.Errorf("the URI %.128q: %w", uri, err)
		}
		if strings.ContainsFunc(plain, isUnsafeInName) {
			return "", fmt.Errorf("the URI %.128q has a character that file names must not have", uri)
		}
		parts[i] = plain
	}
	name := strings.Join(parts, "/")
	if !fs.ValidPath(name) || name == "." {
		return "", fmt.Errorf("the URI %.128q is not that of a file in the directory %.128q", uri, root)
	}
	return name, nil
}

// isUnsafeInName reports whether a character separates path elements or changes how a path is
// displayed.
func isUnsafeInName(r rune) bool {
	return r == '/' || r == '\\' || visible.Hidden(r)
}

// checkName validates the name of a skill. Spec: Agent Skills, name field.
func checkName(name string) error {
	const maxName = 64
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name %.64q… has %d characters, want at most %d", name, len(name), maxName)
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--"):
		return fmt.Errorf("the name %q begins or ends with a hyphen, or has two in a row", name)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || 'z' < c) && (c < '0' || '9' < c) && c != '-' {
			return fmt.Errorf("invalid name %q: want lower-case letters, digits and hyphens", name)
		}
	}
	return nil
}
