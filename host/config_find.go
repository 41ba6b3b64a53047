package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ConfigEnv is the environment variable that names a configuration file.
const ConfigEnv = "PATCHBAY_CONFIG"

// ConfigFiles returns the paths of the configuration files, in order of precedence: path, if it is
// not empty; else the value of the environment variable [ConfigEnv]; else .mcp.json and mcp.json in
// the current directory, and patchbay/mcp.json in the user's configuration directory.
func ConfigFiles(path string) []string {
	if path == "" {
		path = os.Getenv(ConfigEnv)
	}
	if path != "" {
		return []string{path}
	}
	files := []string{".mcp.json", "mcp.json"}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "patchbay", "mcp.json"))
	}
	return files
}

// LoadConfigs reads those files of [ConfigFiles] that exist. A file given by path or by the
// environment must exist. It returns the files that it could read, even with an error, which joins
// the errors of the others.
func LoadConfigs(path string) ([]*Config, error) {
	required := path != "" || os.Getenv(ConfigEnv) != ""
	var configs []*Config
	var errs []error
	for _, file := range ConfigFiles(path) {
		c, err := LoadConfig(file)
		switch {
		case err == nil:
			configs = append(configs, c)
		case required || !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return configs, errors.Join(errs...)
}
