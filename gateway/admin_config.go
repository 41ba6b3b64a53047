package gateway

import (
	"encoding/json"
	"net/http"
)

func configRoutes() []*adminRoute {
	return []*adminRoute{
		getRoute("/config", "Files of the configuration, without secrets", (*adminRequest).config),
		bodyRoute(http.MethodPut, "/config", "",
			"Replace the text of the configuration file, after a backup, or show the difference",
			(*adminRequest).setConfig),
		postRoute("/reload", "", "Read the configuration again", (*adminRequest).reload),
	}
}

// A ConfigFile is a file of the configuration.
type ConfigFile struct {
	Path string `json:"path"`
	// Editable reports whether [AdminOptions].SetConfig writes this file.
	Editable bool `json:"editable" jsonschema:"the file that PUT writes"`
	// Servers are the names of the servers that the gateway uses from it.
	Servers []string `json:"servers"`
	// Text is the text with a mask in place of each value that may be secret.
	Text string `json:"text" jsonschema:"with a mask in place of each value that may be secret"`
	// Version changes with the text of the file.
	Version string `json:"version" jsonschema:"changes with the text of the file"`
}

// OriginDefault is the origin of settings that no file contains.
const OriginDefault = "default"

// A Setting is the effective value of a setting.
type Setting struct {
	// Path is a JSON pointer within the member patchbay of a file.
	Path string `json:"path" jsonschema:"JSON pointer within the member patchbay"`
	// Value is the value with a mask in place of each text that may be secret.
	Value json.RawMessage `json:"value"`
	// Origin is the path of the file that contains the setting, or OriginDefault.
	Origin string `json:"origin" jsonschema:"path of the file with the setting, or default"`
}

// A configList lists the configuration files and the settings.
type configList struct {
	Files    []ConfigFile `json:"files"`
	Settings []Setting    `json:"settings" jsonschema:"that are in force, without the policy"`
}

func (r *adminRequest) config(*noQuery) (*configList, error) {
	if r.admin.opts.Config == nil {
		return nil, unsupported("showing the configuration")
	}
	files, err := r.admin.opts.Config(r.Context())
	if err != nil {
		return nil, err
	}
	res := &configList{append([]ConfigFile{}, files...), []Setting{}}
	if r.admin.opts.Settings != nil {
		settings, err := r.admin.opts.Settings(r.Context())
		if err != nil {
			return nil, err
		}
		res.Settings = append(res.Settings, settings...)
	}
	return res, nil
}

// A ConfigChange is a new text of the configuration file.
type ConfigChange struct {
	// Text is the new text. A mask in it stands for the value that it replaced in the same place.
	Text string `json:"text" jsonschema:"new text; a mask stands for the value that it has replaced in the same place"`
	// Version identifies the text that was edited. A file that has changed since then is not
	// written.
	Version string `json:"version" jsonschema:"of the text that was edited"`
	// DryRun reports the changes without writing the file.
	DryRun bool `json:"dryRun,omitzero" jsonschema:"write nothing, and show the difference"`
}

// A ConfigResult reports the changes of a [ConfigChange], made or, for a dry run, expected.
type ConfigResult struct {
	File    string `json:"file"`
	Changed bool   `json:"changed"`
	DryRun  bool   `json:"dryRun"`
	// Backup is the file with the old text.
	Backup string `json:"backup,omitzero" jsonschema:"file with the old text"`
	// Diff is the difference, without values that may be secret.
	Diff string `json:"diff" jsonschema:"without values that may be secret"`
	// Version identifies the new text.
	Version string `json:"version"`
	// Commands are the command lines that the gateway did not run before, the addresses to which it
	// did not send requests or secrets, and the settings with their old and new values that decide
	// where the gateway listens, whom it serves, who may use its console, and where its audit log is.
	Commands [][]string `json:"commands" jsonschema:"new command lines and addresses and changed settings"`
}

func (r *adminRequest) setConfig(body *ConfigChange) (*ConfigResult, error) {
	if r.admin.opts.SetConfig == nil {
		return nil, unsupported("writing the configuration")
	}
	if r.principal() != nil && !body.DryRun {
		expected, err := r.admin.opts.SetConfig(r.Context(), &ConfigChange{body.Text, body.Version, true})
		if err != nil {
			return nil, err
		}
		if len(expected.Commands) > 0 {
			return nil, problemf(http.StatusForbidden, "new_command", "the change contains command lines, addresses "+
				"or settings that only the user of the gateway may change, such as %.200q: edit the file on the "+
				"machine of the gateway", expected.Commands[0])
		}
	}
	return r.admin.opts.SetConfig(r.Context(), body)
}

// A reloadResult lists the changes of a reload. See [host.Diff].
type reloadResult struct {
	Added    []string `json:"added"`
	Removed  []string `json:"removed"`
	Changed  []string `json:"changed" jsonschema:"servers that are connected to again"`
	Updated  []string `json:"updated" jsonschema:"servers with other settings, which keep their connections"`
	Settings []string `json:"settings" jsonschema:"other settings that have changed"`
	Restart  []string `json:"restart" jsonschema:"settings that have changed and need a restart"`
}

func (r *adminRequest) reload(*noBody) (*reloadResult, error) {
	if r.admin.opts.Reload == nil {
		return nil, unsupported("reloading")
	}
	d, err := r.admin.opts.Reload(r.Context())
	if err != nil {
		return nil, problemf(http.StatusUnprocessableEntity, "invalid_config",
			"the previous configuration stays in force: %v", err)
	}
	list := func(names []string) []string { return append([]string{}, names...) }
	return &reloadResult{list(d.Added), list(d.Removed), list(d.Changed), list(d.Updated), list(d.Settings),
		list(d.Restart)}, nil
}
