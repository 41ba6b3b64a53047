package gatewayconfig

import "github.com/patchbay-mcp/patchbay/host/config"

// An Audit configures how requests are recorded.
type Audit struct {
	// Dir is the folder of the log, absolute if the path of the file is known. By default, the program
	// chooses it.
	Dir string `json:"dir,omitzero" jsonschema:"folder of the log, relative to the file,minLength=1"`
	// Heads is the folder of the last signed checkpoints, like Dir. By default, it is Dir, or the program
	// chooses it.
	Heads string `json:"heads,omitzero" jsonschema:"folder of the last checkpoints,minLength=1"`
	// Args selects how arguments are recorded. Default: AuditShape.
	Args AuditArgs `json:"args" jsonschema:"form of arguments,enum=shape|hash|redacted|full,default=shape"`
	// Sync selects when records are written to the disk. Default: SyncSecond.
	Sync AuditSync `json:"sync" jsonschema:"when records are on disk,enum=second|record|never,default=second"`
	// Strict sends no request before its record is on disk.
	Strict bool `json:"strict" jsonschema:"send no request before its record is on disk,default=false"`
	// SegmentSize and SegmentAge are the size and the age at which a file ends. Defaults: 64 MiB and 24
	// hours.
	SegmentSize config.Size     `json:"segment" jsonschema:"file size,format=size,default=64MiB"`
	SegmentAge  config.Duration `json:"segmentAge" jsonschema:"time of a file,format=duration,default=24h"`
	// Keep is how long files are kept. Default: 2160 hours, which are 90 days.
	Keep config.Duration `json:"keep" jsonschema:"how long files are kept,format=duration,default=2160h"`
	// MaxSize limits the log. At the limit, the oldest files are removed or, with Strict, requests are
	// refused. Default: 16 GiB.
	MaxSize config.Size `json:"maxSize" jsonschema:"total size,format=size,default=16GiB"`
}

// An AuditArgs chooses how arguments are recorded.
type AuditArgs string

// Forms of arguments.
const (
	AuditShape    AuditArgs = "shape"    // names, types and lengths
	AuditHash     AuditArgs = "hash"     // a keyed hash
	AuditRedacted AuditArgs = "redacted" // values, except values that are long or look like secrets
	AuditFull     AuditArgs = "full"     // everything but the secrets of the configuration
)

// An AuditSync chooses when records are written to the disk.
type AuditSync string

// Times of writing to the disk.
const (
	SyncSecond AuditSync = "second" // within a second
	SyncRecord AuditSync = "record" // with each record
	SyncNever  AuditSync = "never"  // when the system does
)

// check completes and checks the member audit of the settings.
func (a *Audit) check(p *config.Problems) {
	if a == nil {
		return
	}
	const least, leastLog = 1 << 20, 16 << 20 // smaller files would be many, and a smaller log would soon be full
	a.Dir, a.Heads = p.Path(a.Dir), p.Path(a.Heads)
	p.AtLeast("/audit/segment", a.SegmentSize, least)
	p.Positive("/audit/segmentAge", a.SegmentAge)
	p.Positive("/audit/keep", a.Keep)
	p.AtLeast("/audit/maxSize", a.MaxSize, leastLog)
	if a.Strict && a.Sync == SyncNever {
		p.Add("/audit/sync", `got "never" with strict, want "second" or "record": a record has to be on disk`)
	}
}
