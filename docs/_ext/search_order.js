// The search lists how-tos and tutorials first, decisions and the log last.
var Scorer = {
  score: ([page, , , , score]) => {
    const bonus = { "how-to": 20, tutorials: 10, decisions: -20, log: -20 };
    return score + (bonus[page.split("/")[0]] ?? 0);
  },
  // what Sphinx gives
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
