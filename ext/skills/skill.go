package skills

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Skill is what a server says of one of its skills: enough to show it, to ask the user about it and to check each of its
// files. It is a snapshot; [Get] gives a newer one. In JSON it has the form in which servers send it, and can be kept so:
// reading that checks it again.
//
// A Skill is known by its server and its URI together. It is not to be changed.
//
// Spec: skills.mdx, Skill Entries.
type Skill struct {
	// URI is that of the skill's SKILL.md.
	URI string
	// Name and Description are the two fields of Frontmatter that every skill has. The name is the last part of the
	// skill's folder; other skills may have the same one.
	Name, Description string
	// Frontmatter is all that SKILL.md says of itself, as a JSON object.
	Frontmatter json.RawMessage
	// Files are all files of the skill, SKILL.md among them. Empty if the skill is dynamic.
	Files []File
	// Dynamic says that the server makes the skill's files as they are read, so that nothing about them can be checked.
	Dynamic bool
}

// A File is one file of a [Skill].
type File struct {
	// Path is the file's path in the skill's folder, with slashes. It never leaves the folder, and holds no character that
	// makes it look like another. It is a stranger's choice all the same, such as ".git/hooks/pre-commit", "-rf" or "CON".
	//
	// A host that writes files to the disk does so through an [os.Root] of a folder that holds nothing but this skill, by
	// the name that [filepath.Localize] gives, and leaves out paths with a part that begins with a dot, on which other
	// programs act. Files whose names differ in case alone may be one and the same there.
	Path   string
	URI    string
	Digest string // "sha256:" and 64 digits of hexadecimal
	Size   int64  // in bytes
}

// The form on the wire.
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

// dynamic stands for the files of a skill that has none to list.
const dynamic = `"dynamic"`

// MarshalJSON returns the skill as servers send it.
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

// UnmarshalJSON reads a skill as servers send it. The error is an [ErrInvalidEntry] if it breaks the rules: it has to name
// its files in full, each once and in its own folder, with digest and size, and its name has to be that of its folder.
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
		return nil, errors.New("frontmatter is no object")
	}
	if err := jsonv2.Unmarshal(w.Frontmatter, &front); err != nil {
		return nil, fmt.Errorf("frontmatter: %w", err)
	}
	s.Name, s.Description = front.Name, front.Description
	switch err := checkName(s.Name); {
	case err != nil:
		return nil, err
	case s.Name != last:
		return nil, fmt.Errorf("the name is %q, but the folder's %.64q", s.Name, last)
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

// parseFiles reads the list of a skill's files.
func parseFiles(root, uri string, raw json.RawMessage) ([]File, error) {
	if jsontext.Value(raw).Kind() != '[' {
		return nil, errors.New(`resources is neither a list nor "dynamic"`)
	}
	var list []wireFile
	if err := jsonv2.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	files := make([]File, len(list))
	seen := make(map[string]bool, len(list))
	for i, w := range list {
		path, err := within(root, w.URI)
		switch {
		case err != nil:
			return nil, err
		case seen[path]:
			return nil, fmt.Errorf("the file %.128q is listed twice", path)
		case !isDigest(w.Digest):
			return nil, fmt.Errorf("the digest of %.128q is %.128q, want sha256: and 64 small hexadecimal digits", path, w.Digest)
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

func isDigest(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(digits) == hex.EncodedLen(sha256.Size) && strings.Trim(digits, "0123456789abcdef") == ""
}

// digestOf is the digest of a file.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Fingerprint tells the skill's files from all others: it is another as soon as one of them is changed, added or taken
// away. What the user has agreed to of this server's skill is good for one fingerprint alone. It is empty if the skill is
// dynamic: there is nothing then that an agreement could be kept for.
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

// checkLimits says why a skill is larger than hosts have to take.
func (s *Skill) checkLimits() error {
	if len(s.Files) > MaxFiles {
		return fmt.Errorf("%w: it has %d files, want at most %d", ErrTooLarge, len(s.Files), MaxFiles)
	}
	left := int64(MaxBytes)
	for _, f := range s.Files {
		if left -= f.Size; left < 0 {
			return fmt.Errorf("%w: its files have more than %d bytes", ErrTooLarge, MaxBytes)
		}
	}
	return nil
}

// checkOwn holds the frontmatter of a skill that is served to the rules of its format; hosts are not so strict.
//
// Spec: Agent Skills, Frontmatter; skills.mdx, Frontmatter.
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
