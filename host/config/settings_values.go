package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// formats replaces the formats of settings in the schema by patterns, which editors know.
var formats = strings.NewReplacer(
	`"format":"duration"`, `"pattern":"`+durationPattern+`"`,
	`"format":"size"`, `"pattern":"`+sizePattern+`"`,
	`"format":"rate"`, `"pattern":"`+ratePattern+`"`)

const (
	durationPattern = `^([0-9.]+(ms|s|m|h))+$`
	sizePattern     = `^[1-9][0-9]{0,11}(B|KiB|MiB|GiB|TiB)$`
	ratePattern     = `^(off|[1-9][0-9]{0,8}/[smh]( burst [1-9][0-9]{0,8})?)$`
)

// A Duration is a time span of the settings, such as "90s".
type Duration time.Duration

// String returns the duration as [time.Duration] does.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalText parses a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 || parsed == 0 && string(text) != "0s" {
		return durationError(string(text))
	}
	*d = Duration(parsed)
	return nil
}

func durationError(text string) error {
	return fmt.Errorf("got %.64q, want a duration of more than 0 and at most %v", text,
		time.Duration(math.MaxInt64).Truncate(time.Hour))
}

// A Size is a number of bytes.
type Size int64

// sizeUnits are the units of sizes, in bytes.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// String returns the size in the form of the settings, such as "8MiB".
func (s Size) String() string {
	for _, unit := range slices.Backward(sizeUnits) {
		if int64(s)%unit.bytes == 0 && int64(s) >= unit.bytes {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.name
		}
	}
	return "0B"
}

// UnmarshalText parses a size.
func (s *Size) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "BKiMGT")
	n, err := strconv.ParseInt(digits, 10, 64)
	for _, unit := range sizeUnits {
		if string(text[len(digits):]) == unit.name && err == nil && n > 0 && n <= math.MaxInt64/unit.bytes {
			*s = Size(n * unit.bytes)
			return nil
		}
	}
	return fmt.Errorf("got %.64q, want a size of less than 8388608TiB", text)
}

// A Rate limits requests per time: Count in each Per on average, and Burst at once after a pause.
// The zero Rate means no limit.
type Rate struct {
	Count int
	Per   time.Duration
	Burst int
}

const rateOff = "off"

var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// String returns the rate in the form of the settings, such as "20/s burst 40".
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

var rateForm = regexp.MustCompile(ratePattern)

// UnmarshalText parses a rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if !rateForm.Match(text) {
		return fmt.Errorf("got %.64q, want %s", text, wantRate)
	}
	*r = Rate{}
	rate, burst, hasBurst := strings.Cut(string(text), " burst ")
	count, unit, ok := strings.Cut(rate, "/")
	if !ok {
		return nil // off
	}
	r.Count, _ = strconv.Atoi(count)
	r.Per, r.Burst = rateUnits[unit], r.Count
	if hasBurst {
		r.Burst, _ = strconv.Atoi(burst)
	}
	return nil
}

const wantRate = `"off" or a rate such as "20/s burst 40"`
