// Package pageviews makes the page-view events that the demo and the benchmarks
// feed to Sluice: seeded, so that a run can be repeated, with Zipf-distributed
// pages and users and a day's rise and fall of traffic.
//
// An event is one JSON object of about 200 bytes with the fields ts (ms since the
// Unix epoch), user, page, country, referrer, agent and duration_ms. The package
// knows no Kafka and no store.
package pageviews

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Options says which events to make. The zero value is a usable default.
type Options struct {
	Seed   uint64
	Events int       // events over the whole Span; default 200,000
	Pages  int       // distinct pages at most; default 2,000
	Users  int       // distinct users at most; default 50,000
	Start  time.Time // default 2026-01-05 00:00 UTC, a Monday
	Span   time.Duration
}

// Generator makes events in order of their time. It belongs to one goroutine.
type Generator struct {
	rng          *rand.Rand
	pages, users *rand.Zipf
	start        int64
	span         float64
	i, n         int
	hours        [25]float64 // share of the events before each hour of the span's 24 parts
}

// New returns a Generator of o, which may be nil.
func New(o *Options) *Generator {
	var opt Options
	if o != nil {
		opt = *o
	}
	if opt.Events <= 0 {
		opt.Events = 200_000
	}
	if opt.Pages <= 0 {
		opt.Pages = 2_000
	}
	if opt.Users <= 0 {
		opt.Users = 50_000
	}
	if opt.Start.IsZero() {
		opt.Start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	}
	if opt.Span <= 0 {
		opt.Span = 24 * time.Hour
	}
	rng := rand.New(rand.NewPCG(opt.Seed, 0x51a1ce))
	g := &Generator{
		rng: rng,
		// Exponents near 1 are what web traffic shows; 1.1 gives the first of
		// 2,000 pages about a sixth of all views.
		pages: rand.NewZipf(rng, 1.1, 1, uint64(opt.Pages-1)),
		users: rand.NewZipf(rng, 1.05, 8, uint64(opt.Users-1)),
		start: opt.Start.UnixMilli(),
		span:  float64(opt.Span.Milliseconds()),
		n:     opt.Events,
	}
	sum := 0.0
	for h := range 24 {
		// Quiet at four in the morning, busy at four in the afternoon.
		sum += 1.2 - math.Cos(2*math.Pi*(float64(h)-4)/24)
		g.hours[h+1] = sum
	}
	for h := range g.hours {
		g.hours[h] /= sum
	}
	return g
}

var (
	countries = [...]string{"DE", "US", "FR", "GB", "IN", "BR", "JP", "PL", "NL", "ES"}
	referrers = [...]string{"https://www.google.com/", "https://news.ycombinator.com/", "https://duckduckgo.com/", "", "https://www.bing.com/"}
	agents    = [...]string{"Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Mozilla/5.0 (Macintosh) Safari/605.1.15", "Mozilla/5.0 (Windows NT 10.0) Chrome/140.0"}
	sections  = [...]string{"docs", "blog", "shop", "help", "news"}
)

// Append appends the next event to dst. It returns ok false, and dst as it was,
// after the last one. Append may be called Options.Events times.
func (g *Generator) Append(dst []byte) (_ []byte, ok bool) {
	if g.i >= g.n {
		return dst, false
	}
	page, user := g.pages.Uint64(), g.users.Uint64()
	dst = append(dst, `{"ts":`...)
	dst = strconv.AppendInt(dst, g.start+int64(g.at(float64(g.i)/float64(g.n))*g.span), 10)
	dst = append(dst, `,"user":"u`...)
	dst = appendPadded(dst, user, 7)
	dst = append(dst, `","page":"/`...)
	dst = append(dst, sections[page%uint64(len(sections))]...)
	dst = append(dst, `/page-`...)
	dst = appendPadded(dst, page, 5)
	dst = append(dst, `","country":"`...)
	dst = append(dst, countries[skewed(g.rng, len(countries))]...)
	dst = append(dst, `","referrer":"`...)
	dst = append(dst, referrers[g.rng.IntN(len(referrers))]...)
	dst = append(dst, `","agent":"`...)
	dst = append(dst, agents[skewed(g.rng, len(agents))]...)
	dst = append(dst, `","duration_ms":`...)
	dst = strconv.AppendInt(dst, 50+int64(g.rng.ExpFloat64()*900), 10)
	g.i++
	return append(dst, '}'), true
}

// at maps a share of the events to a share of the span.
func (g *Generator) at(share float64) float64 {
	h := 0
	for h < 23 && g.hours[h+1] <= share {
		h++
	}
	return (float64(h) + (share-g.hours[h])/(g.hours[h+1]-g.hours[h])) / 24
}

// skewed returns 0..n-1, small numbers more often.
func skewed(rng *rand.Rand, n int) int { return int(float64(n) * rng.Float64() * rng.Float64()) }

func appendPadded(dst []byte, v uint64, width int) []byte {
	var digits [20]byte
	s := strconv.AppendUint(digits[:0], v, 10)
	for range width - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}
