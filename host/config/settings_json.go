package config

import (
	"reflect"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// The types of this file are the JSON of settings. Their tags are the rules and the defaults, and
// the texts of the JSON Schema.

// Blank lines keep the columns of tags short.

type settingsJSON struct {
	Listen string `json:"listen" jsonschema:"address of the gateway as host:port,default=127.0.0.1:7777"`

	Ops string `json:"ops,omitzero" jsonschema:"address of metrics and health as host:port"`

	Pprof bool `json:"pprof" jsonschema:"serve profiles at the address of ops on loopback,default=false"`

	TrustTraceContext bool `json:"trustTraceContext" jsonschema:"continue traces of other machines,default=false"`

	Names namesJSON `json:"names,omitzero" jsonschema:"public names of tools and prompts"`

	Tools toolsJSON `json:"tools,omitzero" jsonschema:"how tools are listed"`

	Servers map[string]serverJSON `json:"servers,omitzero" jsonschema:"settings of servers, by name"`

	Profiles map[string]profileJSON `json:"profiles,omitzero" jsonschema:"named parts of the servers and tools"`

	Audit *auditJSON `json:"audit,omitzero" jsonschema:"log of all requests; absent for none"`

	Policy *policyJSON `json:"policy,omitzero" jsonschema:"what callers may do"`

	Approve []string `json:"approve,omitzero" jsonschema:"how approvals are asked for,enum=client|console|webhook"`

	Webhook *webhookJSON `json:"webhook,omitzero" jsonschema:"URL that is asked for approvals"`

	PublicURL string `json:"publicURL,omitzero" jsonschema:"URL of the gateway for clients,pattern=^https?://"`

	AllowedHosts []string `json:"allowedHosts,omitzero" jsonschema:"names of the gateway,minLength=1,maxLength=256"`

	Auth *authJSON `json:"auth,omitzero" jsonschema:"whom the gateway serves over HTTP"`

	Limits callerLimitsJSON `json:"limits,omitzero" jsonschema:"what one caller may do"`

	Connect connectJSON `json:"connect,omitzero" jsonschema:"logins of callers to servers with auth caller"`
}

type webhookJSON struct {
	URL string `json:"url" jsonschema:"receives requests for approval by POST,pattern=^https?://"`

	Secret string `json:"secret" jsonschema:"variable with the key of signatures,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
}

type namesJSON struct {
	Mode NamesMode `json:"mode" jsonschema:"when names have a prefix,enum=prefix|conflict|none,default=prefix"`

	Max int `json:"max" jsonschema:"most characters of a public name,minimum=36,maximum=128,default=48"`
}

type toolsJSON struct {
	Mode ListMode `json:"mode" jsonschema:"all tools, or a search if there are many,enum=list|search|auto,default=auto"`

	Keep []string `json:"keep,omitzero" jsonschema:"patterns of names that are always listed,minLength=1,maxLength=256"`
}

type profileJSON struct {
	Servers []string `json:"servers,omitzero" jsonschema:"names of servers; absent for all"`

	Tools []string `json:"tools,omitzero" jsonschema:"patterns of public names of tools,minLength=1,maxLength=256"`
}

type serverJSON struct {
	Share Share `json:"share,omitzero" jsonschema:"callers of an instance,enum=shared|caller|session|call"`

	Era Era `json:"era" jsonschema:"era of the protocol,enum=auto|modern|session,default=auto"`

	Allow []string `json:"allow,omitzero" jsonschema:"patterns of the only tools served,minLength=1,maxLength=256"`

	Deny []string `json:"deny,omitzero" jsonschema:"patterns of tools not served,minLength=1,maxLength=256"`

	Timeout string `json:"timeout" jsonschema:"longest silence of a request,pattern=^([0-9.]+(ms|s|m|h))+$,default=60s"`

	MaxTimeout string `json:"maxTimeout" jsonschema:"longest request,pattern=^([0-9.]+(ms|s|m|h))+$,default=10m"`

	Idle string `json:"idle" jsonschema:"stop after; 0s for never,pattern=^([0-9.]+(ms|s|m|h))+$,default=10m"`

	StartTimeout string `json:"startTimeout" jsonschema:"longest start,pattern=^([0-9.]+(ms|s|m|h))+$,default=2m"`

	Roots any `json:"roots,omitzero" jsonschema:"roots: none, those of the caller, or a list of file URIs"`

	Limits limitsJSON `json:"limits,omitzero" jsonschema:"what the processes of a command may use"`

	Rate string `json:"rate" jsonschema:"rate of requests,pattern=^off|RATE$,default=off"`

	ToolRates map[string]string `json:"toolRates,omitzero" jsonschema:"rates of tools by caller, by original name"`

	Concurrency int `json:"concurrency,omitzero" jsonschema:"requests at once,minimum=1,maximum=100000"`

	Instances int `json:"instances,omitzero" jsonschema:"most processes or connections,minimum=1,maximum=100000"`

	Queue int `json:"queue" jsonschema:"requests that wait,minimum=0,maximum=100000,default=64"`

	QueueTimeout string `json:"queueTimeout" jsonschema:"longest wait,pattern=^([0-9.]+(ms|s|m|h))+$,default=10s"`

	Breaker *breakerJSON `json:"breaker,omitzero" jsonschema:"when a server that does not respond gets no requests"`

	Rename map[string]string `json:"rename,omitzero" jsonschema:"public names without prefix, by original name"`

	Describe map[string]string `json:"describe,omitzero" jsonschema:"descriptions of tools, by original name"`

	HideArgs map[string][]string `json:"hideArgs,omitzero" jsonschema:"removed arguments of tools, by original name"`

	Validate Validate `json:"validate" jsonschema:"validation of structured results,enum=off|warn,default=warn"`

	Trust Trust `json:"trust,omitzero" jsonschema:"definitions approved without a user,enum=first|review|insecureAll"`

	TrustResources bool `json:"trustResources" jsonschema:"approve resources as they are listed,default=false"`

	Methods []string `json:"methods,omitzero" jsonschema:"patterns of methods of extensions,minLength=1,maxLength=256"`

	Auth ServerAuth `json:"auth,omitzero" jsonschema:"credentials,enum=none|static|gateway|caller|forward"`

	OAuth *oauthClientJSON `json:"oauth,omitzero" jsonschema:"client of logins, for auth caller or gateway"`

	ForwardHeaders []string `json:"forwardHeaders,omitzero" jsonschema:"headers to pass on,minLength=1"`

	InsecureHTTP bool `json:"insecureHTTP" jsonschema:"send credentials over http to other machines,default=false"`

	InsecureForwardAuthorization bool `json:"insecureForwardAuthorization" jsonschema:"pass it on,default=false"`

	ForwardBaggage bool `json:"forwardBaggage" jsonschema:"pass on the baggage of traces,default=false"`
}

type limitsJSON struct {
	Memory string `json:"memory,omitzero" jsonschema:"memory,pattern=^[1-9][0-9]{0,11}(B|KiB|MiB|GiB|TiB)$"`

	Processes int `json:"processes,omitzero" jsonschema:"number of processes,minimum=1,maximum=1000000"`

	OpenFiles int `json:"openFiles,omitzero" jsonschema:"open files of each process,minimum=1,maximum=1000000"`

	CPU float64 `json:"cpu,omitzero" jsonschema:"processors: 0.5 is half of one,minimum=0.01,maximum=1024"`

	BestEffort bool `json:"bestEffort" jsonschema:"start also where limits cannot be enforced,default=false"`
}

// rootsSchema is the type of the member roots, which no Go type has.
const rootsSchema = `"roots":{"anyOf":[{"type":"string","enum":["none","pass"]},` +
	`{"type":"array","items":{"type":"string","pattern":"^file:///"},"maxItems":100}],`

// toolRatesSchema is the type of the values of the member toolRates: the tag of a map has no pattern.
const (
	toolRates       = `"description":"rates of tools by caller, by original name",`
	toolRatesAny    = toolRates + `"additionalProperties":{"type":"string"}`
	toolRatesSchema = toolRates + `"additionalProperties":{"type":"string","pattern":"` + ratePattern + `"}`
)

// sizePattern is what settingsReader.size parses.
const sizePattern = `^[1-9][0-9]{0,11}(B|KiB|MiB|GiB|TiB)$`

// settingWords replaces texts of the schema in errors.
var settingWords = strings.NewReplacer(
	"a string that matches the regular expression ^([0-9.]+(ms|s|m|h))+$", `a duration such as "90s" or "10m"`,
	"a string that matches the regular expression "+sizePattern, `a size such as "512MiB"`,
	"a string that matches the regular expression "+ratePattern, `"off" or a rate such as "20/s burst 40"`,
	"a string that matches the regular expression ^file:///", `a URI such as "file:///srv/app"`,
	"a string that matches the regular expression ^https?://", `a URL such as "https://mcp.example.com"`,
	"want a string or an array", `want "none", "pass" or an array of file URIs`,
	"unknown property", "unknown member", "known are", "want one of")

// settingsSchema returns the compiled schema of the member patchbay.
var settingsSchema = sync.OnceValue(func() *schema.Schema {
	s, err := schema.For(reflect.TypeFor[settingsJSON]())
	if err == nil {
		s, err = schema.Compile([]byte(strings.NewReplacer(`"roots":{`, rootsSchema, toolRatesAny, toolRatesSchema,
			"^off|RATE$", ratePattern, "^[1-9].*B$", sizePattern).Replace(string(s.JSON()))))
	}
	if err != nil {
		panic(err) // of the tags in this file
	}
	return s
})
