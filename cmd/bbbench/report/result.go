package report

import "forebay/internal/measure"

// Result is a line of the report. A row has more than one where its budget has more
// than one: a median and a 99th percentile, or several stores.
type Result struct {
	Row         int               `json:"row"`
	What        string            `json:"what"`
	Goal        Goal              `json:"goal"`
	Limit       *measure.Figure   `json:"limit,omitempty"`
	Result      *measure.Figure   `json:"result,omitempty"`
	Ratio       *float64          `json:"ratio,omitempty"` // result / limit
	Reached     *bool             `json:"reached,omitempty"`
	Details     []*measure.Figure `json:"details,omitempty"` // further figures of the same run
	Notes       []string          `json:"notes,omitempty"`
	NotMeasured string            `json:"not_measured,omitempty"` // the reason why there is no result
	Failed      bool              `json:"failed,omitempty"`       // it should have been possible
}

// Goal is the goal of a row: a bound on the ratio of result to limit, or on the
// result itself. The zero value is a figure that is published and has no bound.
type Goal struct {
	Text     string  `json:"text"`
	Bound    float64 `json:"bound,omitempty"`
	Absolute bool    `json:"absolute,omitempty"` // the bound is one of the result, in its unit
}

// RatioGoal is a bound on the ratio. The unit decides whether it is the least or the most.
func RatioGoal(text string, bound float64) Goal { return Goal{Text: text, Bound: bound} }

// Met reports whether a goal is reached. It is nil where there is no goal or no figure.
func (g Goal) Met(result *measure.Figure, ratio *float64) *bool {
	if g.Bound == 0 || result == nil || !g.Absolute && ratio == nil {
		return nil
	}
	value := result.Value
	if !g.Absolute {
		value = *ratio
	}
	ok := value <= g.Bound
	if result.Unit.LargerIsBetter() {
		ok = value >= g.Bound
	}
	return &ok
}
