package schema

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A decimal is an exact JSON number: 0.DIGITS × 10^exp. The digits neither begin nor end with a
// zero, and zero contains no digits. The time to compare two is linear in their digits, whatever
// the exponent.
type decimal struct {
	negative bool
	digits   []byte
	exp      int
}

// parseDecimal parses a valid number. It stores the digits in scratch, which may be nil.
func parseDecimal(scratch, raw []byte) decimal {
	d := decimal{digits: scratch[:0]}
	i := 0
	if i < len(raw) && raw[i] == '-' {
		d.negative = true
		i++
	}
	point := false
	for ; i < len(raw) && raw[i]|0x20 != 'e'; i++ {
		if raw[i] == '.' {
			point = true
			continue
		}
		if !point {
			d.exp++
		}
		if len(d.digits) == 0 && raw[i] == '0' {
			d.exp--
			continue
		}
		d.digits = append(d.digits, raw[i])
	}
	d.digits = bytes.TrimRight(d.digits, "0")
	if len(d.digits) == 0 {
		return decimal{}
	}
	if i < len(raw) {
		d.exp += clippedInt(raw[i+1:])
	}
	return d
}

// clippedInt parses an exponent and limits it, so that sums of a few do not overflow.
func clippedInt(text []byte) int {
	n, _ := strconv.Atoi(string(text)) // the nearest int
	return max(-math.MaxInt>>3, min(n, math.MaxInt>>3))
}

func (d decimal) compare(o decimal) int {
	if s := cmp.Compare(d.sign(), o.sign()); s != 0 || d.sign() == 0 {
		return s
	}
	return d.sign() * cmp.Or(cmp.Compare(d.exp, o.exp), bytes.Compare(d.digits, o.digits))
}

func (d decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func (d decimal) isInteger() bool { return len(d.digits) <= max(d.exp, 0) }

// append appends the canonical form of the number, which is JSON for integers with up to 20 zeros at
// the end. Other forms are not JSON, so that they differ from every number as it is written.
func (d decimal) append(dst []byte) []byte {
	if len(d.digits) == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	dst = append(dst, d.digits...)
	if zeros := d.exp - len(d.digits); 0 <= zeros && zeros <= 20 {
		return append(dst, "00000000000000000000"[:zeros]...)
	}
	return appendInt(append(dst, 'x'), d.exp)
}

// A divisor is the value of multipleOf.
type divisor struct {
	digits uint64
	exp    int // of the last digit
	text   string
}

// parseDivisor parses a divisor of at most 18 digits, so that division needs 64 bits only.
func parseDivisor(raw []byte) (divisor, error) {
	const most = 18
	d := parseDecimal(nil, raw)
	if jsonscan.Kind(raw) != '0' || d.sign() <= 0 || len(d.digits) > most {
		return divisor{}, fmt.Errorf("want a number above 0 with at most %d digits", most)
	}
	n, err := strconv.ParseUint(string(d.digits), 10, 64)
	return divisor{n, d.exp - len(d.digits), string(raw)}, err
}

// divides computes the exact remainder digit by digit, then times the remaining power of ten, of which
// a divisor of 18 digits shares at most 60 factors.
func (v divisor) divides(d decimal) bool {
	if len(d.digits) == 0 {
		return true
	}
	power := d.exp - len(d.digits) - v.exp
	if power < 0 {
		return false // the value's last digit is not zero, as it would be in a multiple
	}
	var rest uint64
	for _, c := range d.digits {
		rest = (rest*10 + uint64(c-'0')) % v.digits
	}
	for range min(power, 60) {
		high, low := bits.Mul64(rest, 10)
		rest = bits.Rem64(high, low, v.digits)
	}
	return rest == 0
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// plainIntegers rewrites numbers such as 5.0 and 1e3 to 5 and 1000 if they fit into 64 bits.
func plainIntegers(data []byte) (plain []byte, changed bool) {
	const longest = 20 // digits of the largest uint64
	for i := 0; i < len(data); {
		end := i + 1
		switch jsonscan.Kind(data[i : i+1]) {
		case '"':
			end = skipString(data, i)
		case '0':
			end = skipScalar(data, i)
			if bytes.ContainsAny(data[i:end], ".eE") {
				if d := parseDecimal(nil, data[i:end]); d.isInteger() && d.exp <= longest {
					plain, changed = d.append(plain), true
					i = end
					continue
				}
			}
		}
		plain = append(plain, data[i:end]...)
		i = end
	}
	return plain, changed
}
