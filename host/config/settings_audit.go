package config

import (
	"path/filepath"
	"time"
)

// An Audit configures how requests are recorded.
type Audit struct {
	// Dir is the folder of the log, absolute if the file has a path. Default: empty, for the one that
	// the program chooses.
	Dir string
	// Heads is the folder of the last signed checkpoints, like Dir. Default: empty, for Dir or the
	// folder that the program chooses.
	Heads string
	// Args is how arguments are recorded. Default: AuditShape.
	Args AuditArgs
	// Sync is when records are written to the disk. Default: SyncSecond.
	Sync AuditSync
	// Strict sends no request before its record is on disk.
	Strict bool
	// SegmentSize and SegmentAge are when a file ends. Defaults: 64 MiB and 24 hours.
	SegmentSize int64
	SegmentAge  time.Duration
	// Keep is how long files are kept. Default: 2160 hours, which are 90 days.
	Keep time.Duration
	// MaxSize limits the log, in bytes. At the limit, the oldest files are removed or, with Strict,
	// requests are refused. Default: 16 GiB.
	MaxSize int64
}

// An AuditArgs chooses how arguments are recorded.
type AuditArgs string

// Forms of arguments.
const (
	AuditShape    AuditArgs = "shape"    // names, types and lengths
	AuditHash     AuditArgs = "hash"     // a keyed hash
	AuditRedacted AuditArgs = "redacted" // values without those that look like secrets or are long
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

type auditJSON struct {
	Dir string `json:"dir,omitzero" jsonschema:"folder of the log, relative to the file,minLength=1"`

	Heads string `json:"heads,omitzero" jsonschema:"folder of the last checkpoints,minLength=1"`

	Args AuditArgs `json:"args" jsonschema:"form of arguments,enum=shape|hash|redacted|full,default=shape"`

	Sync AuditSync `json:"sync" jsonschema:"when records are on disk,enum=second|record|never,default=second"`

	Strict bool `json:"strict" jsonschema:"send no request before its record is on disk,default=false"`

	Segment string `json:"segment" jsonschema:"file size,pattern=^[1-9][0-9]{0,11}(B|KiB|MiB|GiB|TiB)$,default=64MiB"`

	SegmentAge string `json:"segmentAge" jsonschema:"time of a file,pattern=^([0-9.]+(ms|s|m|h))+$,default=24h"`

	Keep string `json:"keep" jsonschema:"how long files are kept,pattern=^([0-9.]+(ms|s|m|h))+$,default=2160h"`

	MaxSize string `json:"maxSize" jsonschema:"total size,pattern=^[1-9][0-9]{0,11}(B|KiB|MiB|GiB|TiB)$,default=16GiB"`
}

func (r *settingsReader) audit(given *auditJSON) *Audit {
	if given == nil {
		return nil
	}
	const least, leastLog = 1 << 20, 16 << 20 // smaller files would be many, and a smaller log would soon be full
	a := &Audit{Dir: r.path(given.Dir), Heads: r.path(given.Heads), Args: given.Args, Sync: given.Sync,
		Strict: given.Strict, SegmentSize: r.size(given.Segment, least, "/audit/segment"),
		SegmentAge: r.duration(given.SegmentAge, "/audit/segmentAge"), Keep: r.duration(given.Keep, "/audit/keep"),
		MaxSize: r.size(given.MaxSize, leastLog, "/audit/maxSize")}
	if a.Strict && a.Sync == SyncNever {
		r.problem("/audit/sync", `got "never" with strict, want "second" or "record": a record has to be on disk`)
	}
	return a
}

// path returns a path relative to the folder of the file.
func (r *settingsReader) path(name string) string {
	if name == "" || filepath.IsAbs(name) || r.file.Path == "" {
		return name
	}
	return filepath.Join(filepath.Dir(r.file.Path), name)
}
