package run

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// maxSettings limits the settings that are listed: a file may configure each tool of many servers.
const maxSettings = 2000

// settingsInForce returns the effective settings with masks, and where each value comes from.
func (g *Run) settingsInForce(context.Context) (all []gateway.Setting, err error) {
	f := g.fileInForce()
	settings, err := gatewayconfig.Read(f)
	if err != nil {
		return nil, err
	}
	recorded := map[bool]string{true: "summaries", false: "off"}[g.Config.Capture != nil]
	settings.Capture = cmp.Or(g.Capture, settings.Capture, recorded)
	text, err := json.Marshal(map[string]any{"patchbay": settings})
	if err != nil {
		return nil, err
	}
	effective, _ := rawjson.Get([]byte(g.mask.Masked(text)), "patchbay")
	all = appendSettings(all, "", effective, f.Extra["patchbay"], f.Path)
	for i := range all {
		if all[i].Path == "/capture" && g.Capture != "" {
			all[i].Origin = "--capture"
		}
	}
	return all, nil
}

// appendSettings appends the values within a JSON value other than the policy, which has a page of
// its own. given is the value in the file at path, nil if the file lacks it.
func appendSettings(all []gateway.Setting, pointer string, value, given []byte, path string) []gateway.Setting {
	if rawjson.Kind(value) != '{' || string(value) == "{}" {
		s := gateway.Setting{Path: pointer, Value: value, Origin: gateway.OriginDefault}
		if given != nil {
			s.Origin = path
		}
		if len(all) < maxSettings {
			all = append(all, s)
		}
		return all
	}
	for key, member := range rawjson.Members(value) {
		name := string(key)
		if pointer == "" && name == "policy" {
			continue
		}
		var own []byte
		if rawjson.Kind(given) == '{' {
			own, _ = rawjson.Get(given, name)
		}
		all = appendSettings(all, pointer+config.Pointer(name), member, own, path)
	}
	return all
}
