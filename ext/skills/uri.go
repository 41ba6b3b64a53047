package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"unicode"
)

// maxURI bounds the URIs of skills and their files. Resources have the same bound.
const maxURI = 8 << 10

// escapePath returns a path as part of a URI. Only unreserved characters stay, so that a path may begin the authority.
//
// Spec: RFC 3986, sections 2.3 and 3.2.2.
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

// rootOf returns the URI of a skill's folder, from that of its SKILL.md, and the last part of it.
func rootOf(uri string) (root, name string, err error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	switch {
	case len(uri) > maxURI:
		return "", "", fmt.Errorf("the URI has %d bytes, want at most %d", len(uri), maxURI)
	case !ok || scheme == "" || strings.ContainsAny(uri, "?#"):
		return "", "", fmt.Errorf("the URI %.128q is not one of a skill, such as skill://name/%s", uri, skillFile)
	}
	path, ok := strings.CutSuffix(rest, "/"+skillFile)
	if !ok {
		return "", "", fmt.Errorf("the URI %.128q does not end with /%s", uri, skillFile)
	}
	return strings.TrimSuffix(uri, "/"+skillFile), path[strings.LastIndexByte(path, '/')+1:], nil
}

// within returns the path of a file in the folder of a skill. The URI comes from a stranger, and the path may become one of
// the disk: it leaves the folder on no system, and each of its parts is one.
func within(root, uri string) (string, error) {
	escaped, ok := strings.CutPrefix(uri, root+"/")
	if !ok || len(uri) > maxURI || strings.ContainsAny(escaped, "?#") {
		return "", fmt.Errorf("the URI %.128q is not in the folder %.128q", uri, root)
	}
	parts := strings.Split(escaped, "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return "", fmt.Errorf("the URI %.128q: %w", uri, err)
		}
		if strings.ContainsFunc(plain, noNameHas) {
			return "", fmt.Errorf("the URI %.128q holds a character that no name of a file has", uri)
		}
		parts[i] = plain
	}
	name := strings.Join(parts, "/")
	if !fs.ValidPath(name) || name == "." {
		return "", fmt.Errorf("the URI %.128q is not that of a file in the folder %.128q", uri, root)
	}
	return name, nil
}

// noNameHas reports whether a character makes a path other than it looks: one that parts it, a control character, or one
// that turns or breaks the line in which it is shown to the user.
func noNameHas(r rune) bool {
	return r == '/' || r == '\\' || unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// checkName holds a name to the rules that names of skills have.
//
// Spec: Agent Skills, name field.
func checkName(name string) error {
	const most = 64
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > most:
		return fmt.Errorf("the name %.64q… has %d characters, want at most %d", name, len(name), most)
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--"):
		return fmt.Errorf("the name %q begins or ends with a hyphen, or has two of them in a row", name)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || 'z' < c) && (c < '0' || '9' < c) && c != '-' {
			return fmt.Errorf("the name %q holds more than small letters, digits and hyphens", name)
		}
	}
	return nil
}
