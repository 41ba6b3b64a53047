package configs

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// Identity returns a text that identifies a configuration: the named file, or the user's files
// together with the project files that exist here. path is the value of --config. A user's file
// that is added later does not change the identity.
func Identity(path string) (string, error) {
	if named := cmp.Or(path, os.Getenv(config.PathEnv)); named != "" {
		full, err := filepath.Abs(named)
		return "file\x00" + full, err
	}
	found := []string{"user"}
	for _, p := range standardPlaces() {
		if p.dir == "" {
			continue
		}
		if _, err := os.Stat(p.path); err == nil {
			full, err := filepath.Abs(p.path)
			if err != nil {
				return "", err
			}
			found = append(found, full)
		}
	}
	return strings.Join(found, "\x00"), nil
}
