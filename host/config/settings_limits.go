package config

import (
	"cmp"
	"time"
)

// CallerLimits limits what a single caller may do, over all servers. All callers without a principal
// are the same local user.
type CallerLimits struct {
	// PerCaller limits the rate of the requests of a caller. Default: 1000/s burst 2000.
	PerCaller Rate `json:"perCaller,omitzero" jsonschema:"rate of a caller,format=rate"`
	// Local limits the rate of the requests of the local user. It equals PerCaller if the file contains
	// perCaller; by default, there is no limit.
	Local Rate `json:"-"`
	// PerTool limits the rate at which a caller calls a tool that [ServerSettings.ToolRates] does not
	// contain. Default: no limit.
	PerTool Rate `json:"perTool" jsonschema:"rate of a tool by caller,format=rate,default=off"`
	// CallsPerDay limits the tool calls of a caller from midnight to midnight, UTC; zero means no limit.
	CallsPerDay int64 `json:"callsPerDay,omitzero" jsonschema:"most tool calls of a caller in a day (UTC),minimum=1"`
	// BytesPerDay limits the total size of the requests of a caller and of their results from midnight to
	// midnight, UTC; zero means no limit.
	BytesPerDay Size `json:"bytesPerDay,omitzero" jsonschema:"most bytes of a caller in a day,format=size"`
	// ArgumentBytes limits the arguments of a request. Default: 1 MiB.
	ArgumentBytes Size `json:"argumentBytes" jsonschema:"largest arguments,format=size,default=1MiB"`
	// ResultBytes limits a result. Default: 8 MiB.
	ResultBytes Size `json:"resultBytes" jsonschema:"largest result,format=size,default=8MiB"`
	// Result selects what happens to a larger result. Default: ResultError.
	Result LargeResult `json:"result" jsonschema:"larger results: an error or a link,enum=error|spill,default=error"`
	// Processes limits the processes of all servers that are commands. Default: 100.
	Processes int `json:"processes" jsonschema:"most processes of all servers,minimum=1,maximum=100000,default=100"`
}

// A LargeResult selects what happens to a result that is larger than allowed.
type LargeResult string

// Values of LargeResult.
const (
	ResultError LargeResult = "error" // the caller receives an error
	ResultSpill LargeResult = "spill" // the result of a tool is kept for a while, and the caller receives a link
)

// defaultPerCaller is more than the clients of a caller send, and less than a loop can send.
var defaultPerCaller = Rate{Count: 1000, Per: time.Second, Burst: 2000}

// defaultBreaker repeats the defaults in the tags of Breaker, for servers without the member.
var defaultBreaker = Breaker{Failures: 5, Open: Duration(10 * time.Second)}

const (
	// Many processes serve requests one after the other; other servers serve them in parallel.
	defaultProcessConcurrency, defaultConcurrency = 8, 64

	// Processes cost memory of this machine; connections cost little.
	defaultProcesses, defaultConnections = 16, 1000

	leastBytes  Size = 1 << 10 // smaller limits refuse requests of every client
	leastMemory Size = 1 << 20 // no server runs in less
)

// callerLimits completes and checks the limits of callers.
func (p *Problems) callerLimits(l *CallerLimits) {
	l.Local = l.PerCaller
	if !p.has("limits", "perCaller") {
		l.PerCaller = defaultPerCaller
	}
	p.AtLeast("/limits/bytesPerDay", l.BytesPerDay, leastBytes)
	p.AtLeast("/limits/argumentBytes", l.ArgumentBytes, leastBytes)
	p.AtLeast("/limits/resultBytes", l.ResultBytes, leastBytes)
}

// serverLimits completes and checks the limits of the requests to a server.
func (p *Problems) serverLimits(name string, s *ServerSettings) {
	concurrency, instances := defaultProcessConcurrency, defaultProcesses
	if entry, err := p.file.Server(name); err == nil && entry.Type != TypeStdio {
		concurrency, instances = defaultConcurrency, defaultConnections
	}
	s.Concurrency, s.Instances = cmp.Or(s.Concurrency, concurrency), cmp.Or(s.Instances, instances)
	if !p.has("servers", name, "breaker") {
		s.Breaker = defaultBreaker
	}
	p.AtLeast(Pointer("servers", name, "limits", "memory"), s.Limits.Memory, leastMemory)
}
