package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"unicode"
)

// maxURI is the largest length of a URI, in bytes: that of resources.
const maxURI = 8 << 10

// escapePath escapes a path for a URI. It keeps unreserved characters only, because the path may
// begin in the authority.
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

// rootOf returns the URI of a skill's directory, from that of its SKILL.md, and its last path
// segment.
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

// isUnsafeInName reports whether a character separates paths or changes how a path is displayed:
// control characters, and those for bidirectional text and line breaks.
func isUnsafeInName(r rune) bool {
	return r == '/' || r == '\\' || unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// checkName validates the name of a skill.
//
// Spec: Agent Skills, name field.
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
