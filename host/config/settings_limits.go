package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CallerLimits bound what one caller may do, over all servers. All callers without a principal are
// one local user.
type CallerLimits struct {
	// PerCaller is the rate of the requests of one caller. Default: 1000/s burst 2000.
	PerCaller Rate
	// Local is the rate of the requests of the local user: PerCaller if the file has it. Default: none.
	Local Rate
	// PerTool is the rate of the calls of one tool by one caller, for tools without a rate of their own
	// in [ServerSettings.ToolRates]. Default: none.
	PerTool Rate
	// CallsPerDay is how many tool calls a caller may send from midnight to midnight, UTC. Default:
	// zero, for no limit.
	CallsPerDay int64
	// BytesPerDay is how many bytes the requests of a caller and their results may have together.
	// Default: zero, for no limit.
	BytesPerDay Size
	// ArgumentBytes is the most bytes of the arguments of a request. Default: 1 MiB.
	ArgumentBytes Size
	// ResultBytes is the most bytes of a result. Default: 8 MiB.
	ResultBytes Size
	// Result is what happens with a larger one. Default: ResultError.
	Result LargeResult
	// Processes is how many processes all servers that are commands may have at once. Default: 100.
	Processes int
}

// A Size is a number of bytes.
type Size int64

// String returns the size as it is written in settings, such as "8MiB".
func (s Size) String() string {
	for _, unit := range slices.Backward(sizeUnits) {
		if int64(s)%unit.bytes == 0 && int64(s) >= unit.bytes {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.name
		}
	}
	return "0B"
}

// A LargeResult chooses what happens with a result that is larger than allowed.
type LargeResult string

// Values of LargeResult.
const (
	ResultError LargeResult = "error" // the caller receives an error
	ResultSpill LargeResult = "spill" // that of a tool is kept for a while, and the caller receives a link
)

// A Breaker configures when requests are no longer sent to a server that does not respond.
type Breaker struct {
	// Failures is the number of requests in sequence without a response. Default: 5. Zero: never.
	Failures int
	// Open is for how long. Then one request tries the server. Default: 10 seconds.
	Open time.Duration
}

// A Rate limits requests per time: Count in each Per on average, and Burst at once after a pause.
// The zero Rate is no limit.
type Rate struct {
	Count int
	Per   time.Duration
	Burst int
}

// String returns the rate as it is written in settings, such as "20/s burst 40".
func (r Rate) String() string {
	if r == (Rate{}) {
		return rateOff
	}
	text := strconv.Itoa(r.Count)
	for unit, d := range rateUnits {
		if d == r.Per {
			text += "/" + unit
		}
	}
	if r.Burst != r.Count {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	return text
}

const rateOff = "off"

var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// ratePattern is what parseRate accepts.
const ratePattern = `^(off|[1-9][0-9]{0,8}/[smh]( burst [1-9][0-9]{0,8})?)$`

// parseRate parses a rate that matches ratePattern.
func parseRate(text string) (r Rate) {
	rate, burst, hasBurst := strings.Cut(text, " burst ")
	count, unit, ok := strings.Cut(rate, "/")
	if !ok {
		return r // off
	}
	r.Count, _ = strconv.Atoi(count)
	r.Per, r.Burst = rateUnits[unit], r.Count
	if hasBurst {
		r.Burst, _ = strconv.Atoi(burst)
	}
	return r
}

// defaultPerCaller is more than the clients of one caller send, and less than what a loop can.
var defaultPerCaller = Rate{Count: 1000, Per: time.Second, Burst: 2000}

// defaultBreaker has the defaults of breakerJSON, for servers without the member.
var defaultBreaker = Breaker{Failures: 5, Open: 10 * time.Second}

const (
	// defaultProcessConcurrency is for servers that are processes of this machine, many of which serve
	// one request after the other; defaultConcurrency is for others.
	defaultProcessConcurrency, defaultConcurrency = 8, 64

	// defaultProcesses and defaultConnections are for the instances of one server, which are processes of this
	// machine, or connections.
	defaultProcesses, defaultConnections = 16, 1000

	leastBytes = 1 << 10 // smaller limits refuse what every client sends
)

// The patterns of rates and sizes stand for longer ones: see settingsSchema.

type callerLimitsJSON struct {
	PerCaller string `json:"perCaller,omitzero" jsonschema:"rate of a caller,pattern=^off|RATE$"`

	PerTool string `json:"perTool" jsonschema:"rate of a tool by caller,pattern=^off|RATE$,default=off"`

	CallsPerDay int64 `json:"callsPerDay,omitzero" jsonschema:"most tool calls of a caller in a day (UTC),minimum=1"`

	BytesPerDay string `json:"bytesPerDay,omitzero" jsonschema:"most bytes of a caller in a day,pattern=^[1-9].*B$"`

	Arguments string `json:"argumentBytes" jsonschema:"largest arguments,pattern=^[1-9].*B$,default=1MiB"`

	ResultBytes string `json:"resultBytes" jsonschema:"largest result,pattern=^[1-9].*B$,default=8MiB"`

	Result LargeResult `json:"result" jsonschema:"larger results: an error or a link,enum=error|spill,default=error"`

	Processes int `json:"processes" jsonschema:"most processes of all servers,minimum=1,maximum=100000,default=100"`
}

type breakerJSON struct {
	Failures int `json:"failures" jsonschema:"requests without a response; 0: never,minimum=0,maximum=1000,default=5"`

	Open string `json:"open" jsonschema:"time without requests,pattern=^([0-9.]+(ms|s|m|h))+$,default=10s"`
}

// callerLimits returns the limits of callers. given has its defaults.
func (r *settingsReader) callerLimits(given *callerLimitsJSON) CallerLimits {
	l := CallerLimits{PerCaller: defaultPerCaller, PerTool: parseRate(given.PerTool), CallsPerDay: given.CallsPerDay,
		Result: given.Result, Processes: given.Processes}
	if given.PerCaller != "" {
		l.PerCaller = parseRate(given.PerCaller)
		l.Local = l.PerCaller
	}
	l.BytesPerDay = Size(r.size(given.BytesPerDay, leastBytes, "/limits/bytesPerDay"))
	l.ArgumentBytes = Size(r.size(given.Arguments, leastBytes, "/limits/argumentBytes"))
	l.ResultBytes = Size(r.size(given.ResultBytes, leastBytes, "/limits/resultBytes"))
	return l
}

// serverLimits sets the limits of the requests to a server.
func (r *settingsReader) serverLimits(
	name string, s *ServerSettings, given *serverJSON, at func(member ...string) string,
) {
	s.Rate, s.Queue = parseRate(given.Rate), given.Queue
	concurrency, instances := defaultProcessConcurrency, defaultProcesses
	if entry, err := r.file.Server(name); err == nil && entry.Type != TypeStdio {
		concurrency, instances = defaultConcurrency, defaultConnections
	}
	s.Concurrency, s.Instances = cmp.Or(given.Concurrency, concurrency), cmp.Or(given.Instances, instances)
	s.QueueTimeout = r.duration(given.QueueTimeout, at("queueTimeout"))
	s.Breaker = defaultBreaker
	if b := given.Breaker; b != nil {
		s.Breaker = Breaker{Failures: b.Failures, Open: r.duration(b.Open, at("breaker", "open"))}
	}
	for _, tool := range slices.Sorted(maps.Keys(given.ToolRates)) {
		if s.ToolRates == nil {
			s.ToolRates = map[string]Rate{}
		}
		s.ToolRates[tool] = parseRate(given.ToolRates[tool])
	}
}
