package config_test

import (
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
)

func TestInvalidLimitsAreErrorsWithTheirPlace(t *testing.T) {
	const rate = `want "off" or a rate such as "20/s burst 40"`
	for text, want := range map[string]string{
		`"perCaller": "20 per s"`:        `perCaller: got the string "20 per s", ` + rate,
		`"perCaller": "0/s"`:             `perCaller: got the string "0/s", ` + rate,
		`"perCaller": "20/d"`:            `perCaller: got the string "20/d", ` + rate,
		`"perTool": "20/s burst"`:        `perTool: got the string "20/s burst", ` + rate,
		`"perTool": "20/s burst 1 "`:     `perTool: got the string "20/s burst 1 ", ` + rate,
		`"perTool": 20`:                  `perTool: got the number 20, want a string`,
		`"callsPerDay": 0`:               `callsPerDay: got the number 0, want a number of at least 1`,
		`"bytesPerDay": "1 GB"`:          `bytesPerDay: got the string "1 GB", want a size such as "512MiB"`,
		`"argumentBytes": "10B"`:         `argumentBytes: got "10B", want at least 1KiB and less than`,
		`"resultBytes": "9999999999TiB"`: `resultBytes: got "9999999999TiB", want a size of less than 8388608TiB`,
		`"result": "drop"`:               `result: got the string "drop", want one of "error", "spill"`,
		`"perCaler": "20/s"`:             `perCaler: unknown member "perCaler" (did you mean "perCaller"?)`,
	} {
		checkProblem(t, `{"limits": {`+text+`}}`, "patchbay.limits."+want)
	}
	for text, want := range map[string]string{
		`"rate": "fast"`:                             `rate: got the string "fast", ` + rate,
		`"toolRates": {"a.b": "1/day"}`:              `toolRates["a.b"]: got the string "1/day", ` + rate,
		`"concurrency": 0`:                           `concurrency: got the number 0, want a number of at least 1`,
		`"queue": -1`:                                `queue: got the number -1, want a number of at least 0`,
		`"queueTimeout": "0s"`:                       `queueTimeout: got "0s", want a duration of more than 0`,
		`"breaker": {"failures": -1}`:                `breaker.failures: got the number -1, want a number of at least 0`,
		`"breaker": {"failures": 3, "open": "soon"}`: `breaker.open: got the string "soon", want a duration such as`,
		`"breaker": {"open": "0s"}`:                  `breaker.open: got "0s", want a duration of more than 0`,
	} {
		checkProblem(t, `{"servers": {"fs": {`+text+`}}}`, "patchbay.servers.fs."+want)
	}
}

func TestRatesAndSizesAreShownAsTheyAreWritten(t *testing.T) {
	s := settings(t, fullSettings)
	for want, got := range map[string]string{
		"20/s burst 40": s.Limits.PerCaller.String(),
		"60/m":          s.Limits.PerTool.String(),
		"off":           config.Rate{}.String(),
		"5/h burst 2":   s.Servers["fs"].ToolRates["read.file"].String(),
		"1500B":         s.Limits.ResultBytes.String(),
		"64KiB":         s.Limits.ArgumentBytes.String(),
		"1GiB":          s.Limits.BytesPerDay.String(),
		"0B":            config.Size(0).String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Without the member perCaller, only callers with a principal have a rate.
func TestLocalUserHasNoRateByDefault(t *testing.T) {
	none := config.Rate{}
	for text, local := range map[string]config.Rate{
		`{}`: none, `{"limits": {}}`: none, `{"limits": {"perCaller": "off"}}`: none,
		`{"limits": {"perCaller": "2/m"}}`: {Count: 2, Per: time.Minute, Burst: 2},
	} {
		if s := settings(t, `{"servers": {}, "patchbay": `+text+`}`); s.Limits.Local != local {
			t.Errorf("%s: got %v, want %v", text, s.Limits.Local, local)
		}
	}
}
