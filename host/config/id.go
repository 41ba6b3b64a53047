package config

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"slices"
	"strings"
)

// maxID is the most characters of an id. Together with a separator it leaves half of 64 characters,
// the limit of some model APIs, to the name of a tool.
const maxID = 24

var validID = regexp.MustCompile(`^[a-z0-9-]{1,24}$`)

// ID returns the id of a server for public names: 1 to 24 of the characters a-z, 0-9 and -, unique
// in the file. A name that is such an id is its own id. In other names capitals become small and
// other characters -, and if that is not unique, a hash of the name follows. The result does not
// depend on the order of the servers. It is empty for an unknown name.
func (f *File) ID(name string) string { return f.ids[name] }

// serverIDs returns the ids of servers by name.
func serverIDs(names []string) map[string]string {
	ids, used, plain := map[string]string{}, map[string]bool{}, map[string]int{}
	var invalid []string
	for _, name := range names {
		if validID.MatchString(name) {
			ids[name], used[name] = name, true
		} else if !slices.Contains(invalid, name) {
			invalid = append(invalid, name)
			plain[plainID(name)]++
		}
	}
	slices.Sort(invalid)
	for _, name := range invalid {
		id := plainID(name)
		for attempt := 0; used[id] || attempt == 0 && plain[id] > 1; attempt++ {
			id = hashedID(name, attempt)
		}
		ids[name], used[id] = id, true
	}
	return ids
}

// plainID returns a name with the characters of ids.
func plainID(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxID {
			break
		}
	}
	if id := strings.TrimSuffix(b.String(), "-"); id != "" {
		return id
	}
	return "server"
}

// hashedID returns an id for a name whose plain id belongs to another server. Each attempt returns
// a different id.
func hashedID(name string, attempt int) string {
	const length = 6 // characters of the hash
	sum := sha256.Sum256([]byte(name + strings.Repeat("\x00", attempt)))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:length]
	plain := plainID(name)
	return strings.TrimSuffix(plain[:min(len(plain), maxID-1-length)], "-") + "-" + hash
}
