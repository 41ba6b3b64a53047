package wire_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Requirement: VER-24
func TestVersionsCompareByMembership(t *testing.T) {
	for _, r := range wire.Revisions() {
		if got, ok := wire.ParseRevision(r.String()); !ok || got != r {
			t.Errorf("ParseRevision(%q) = %v, %v, want %v", r.String(), got, ok, r)
		}
	}
	for _, s := range []string{"", "2025-11-2", "2025-11-25 ", "2026-07-29", "draft", "9999-12-31"} {
		if r, ok := wire.ParseRevision(s); ok || r != 0 {
			t.Errorf("ParseRevision(%q) = %v, %v, want none", s, r, ok)
		}
	}
}

func TestRevisionsAreOrdered(t *testing.T) {
	all := wire.Revisions()
	if !slices.IsSorted(all) || !slices.IsSortedFunc(all,
		func(a, b wire.Revision) int { return strings.Compare(a.String(), b.String()) }) {
		t.Errorf("Revisions() = %v, want them in order", all)
	}
	if wire.Latest() != all[len(all)-1] || !wire.Latest().Modern() {
		t.Errorf("Latest() = %v, want the last revision, which is modern", wire.Latest())
	}
	if wire.LatestLegacy().Modern() || !(wire.LatestLegacy() + 1).Modern() {
		t.Errorf("LatestLegacy() = %v, want the last one before the modern ones", wire.LatestLegacy())
	}
}

func TestUnknownRevisionsHaveNoFeatures(t *testing.T) {
	for _, r := range []wire.Revision{0, wire.Latest() + 1, 255} {
		if r.String() != "" || r.Modern() || r.Has(wire.Handshake) || r.Deprecated(wire.Roots) ||
			r.HasMeta(wire.MetaProgressToken) {
			t.Errorf("revision %d has a name, an era, a feature or a key, want none", uint8(r))
		}
		if _, ok := r.Method(wire.MethodToolsCall); ok {
			t.Errorf("revision %d has tools/call, want no method", uint8(r))
		}
		if r.HasCode(wire.CodeHeaderMismatch) || !r.HasCode(-32603) {
			t.Errorf("revision %d: HasCode is true for %d or false for -32603", uint8(r), wire.CodeHeaderMismatch)
		}
	}
	if wire.Latest().Has(0) || wire.LatestLegacy().Has(0) || wire.Latest().Has(255) {
		t.Error("Has() = true for an unknown feature, want false")
	}
}

// A feature is in some revisions and not in others, or deprecated in some.
func TestFeaturesDifferBetweenRevisions(t *testing.T) {
	for i, c := range constants(t, "feature.go") {
		f, with := wire.Feature(i+1), 0
		for _, r := range wire.Revisions() {
			if r.Has(f) {
				with++
			} else if r.Deprecated(f) {
				t.Errorf("%s is deprecated in %v, which does not have it", c.name, r)
			}
		}
		deprecatedSomewhere := slices.ContainsFunc(wire.Revisions(),
			func(r wire.Revision) bool { return r.Deprecated(f) })
		if with == 0 || with == len(wire.Revisions()) && !deprecatedSomewhere {
			t.Errorf("%s is in %d of %d revisions without a difference", c.name, with, len(wire.Revisions()))
		}
	}
}

func TestFeaturesHaveTheirFirstAndLastRevision(t *testing.T) {
	spans := []struct {
		feature     wire.Feature
		first, last wire.Revision
	}{
		{wire.Batches, wire.March2025, wire.March2025},
		{wire.AudioContent, wire.March2025, wire.July2026},
		{wire.ResourceLinks, wire.June2025, wire.July2026},
		{wire.SessionHTTP, wire.March2025, wire.November2025},
		{wire.SSEPriming, wire.November2025, wire.November2025},
		{wire.ToolExecution, wire.November2025, wire.November2025},
		{wire.Handshake, wire.November2024, wire.November2025},
		{wire.ResultType, wire.July2026, wire.July2026},
		{wire.CredentialsByIssuer, wire.July2026, wire.July2026},
	}
	for _, s := range spans {
		for _, r := range wire.Revisions() {
			if want := s.first <= r && r <= s.last; r.Has(s.feature) != want {
				t.Errorf("%v.Has(%d) = %v, want %v", r, s.feature, !want, want)
			}
		}
	}
}

// Requirement: MRTR-02
func TestMethodsHaveTheirProperties(t *testing.T) {
	var input, cacheable []string
	for _, c := range constants(t, "method.go") {
		m, ok := wire.July2026.Method(c.value)
		if ok && m.MayAskInput {
			input = append(input, m.Name)
		}
		if ok && m.Cacheable {
			cacheable = append(cacheable, m.Name)
		}
	}
	if diff := cmp.Diff([]string{"tools/call", "prompts/get", "resources/read"}, input); diff != "" {
		t.Errorf("methods that may ask for input: %s", diff)
	}
	want := []string{"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list",
		"resources/read"}
	if diff := cmp.Diff(want, cacheable); diff != "" {
		t.Errorf("cacheable methods: %s", diff)
	}
	for method, param := range map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
		"tools/list": ""} {
		if m, _ := wire.July2026.Method(method); m.NameParam != param {
			t.Errorf("%s: NameParam = %q, want %q", method, m.NameParam, param)
		}
	}
}

// The method tables agree with the messages that the official schemas define.
func TestMethodsAgreeWithSchemas(t *testing.T) {
	for _, r := range wire.Revisions() {
		t.Run(r.String(), func(t *testing.T) {
			defs := schemaDefinitions(t, r)
			want := map[string]wire.Direction{}
			for _, side := range []struct {
				unions    []string
				direction wire.Direction
			}{
				{[]string{"ClientRequest", "ClientNotification"}, wire.ClientToServer},
				{[]string{"ServerRequest", "ServerNotification"}, wire.ServerToClient},
				{[]string{"InputRequest"}, wire.InsideResult},
			} {
				for _, union := range side.unions {
					for _, method := range defs.methods(union) {
						if want[method] != 0 && want[method] != side.direction {
							want[method] = wire.EitherWay
						} else {
							want[method] = side.direction
						}
					}
				}
			}
			got := map[string]wire.Direction{}
			for _, c := range constants(t, "method.go") {
				if m, ok := r.Method(c.value); ok {
					got[m.Name] = m.Direction
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-schema +tables: %s", diff)
			}
		})
	}
}

// The envelope's keys are those that the official schema names.
func TestMetaKeysAgreeWithSchema(t *testing.T) {
	defs := schemaDefinitions(t, wire.July2026)
	for _, def := range []string{"RequestMetaObject", "ResultMetaObject", "NotificationMetaObject"} {
		for key := range defs[def].Properties {
			if !wire.July2026.HasMeta(key) {
				t.Errorf("HasMeta(%q) = false, want true: %s has it", key, def)
			}
		}
	}
}

type definitions map[string]definition

type definition struct {
	AnyOf []struct {
		Ref string `json:"$ref"`
	}
	Properties map[string]struct{ Const any }
}

// methods returns the methods of the messages that a union joins.
func (defs definitions) methods(union string) (list []string) {
	d := defs[union]
	if m, ok := d.Properties["method"].Const.(string); ok {
		return []string{m}
	}
	for _, alternative := range d.AnyOf {
		list = append(list, defs.methods(filepath.Base(alternative.Ref))...)
	}
	return list
}

// schemaDefinitions reads the official schema of a revision, which is not in this repository.
func schemaDefinitions(t *testing.T, r wire.Revision) definitions {
	t.Helper()
	dir := os.Getenv("PATCHBAY_SCHEMAS")
	if dir == "" {
		dir = "../../../shared/spec/schema"
	}
	data, err := os.ReadFile(filepath.Join(dir, r.String()+".json"))
	if err != nil {
		t.Skipf("no official schemas: set PATCHBAY_SCHEMAS to the directory that holds them (%v)", err)
	}
	var schema struct {
		Definitions definitions
		Defs        definitions `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Defs != nil {
		return schema.Defs
	}
	return schema.Definitions
}
