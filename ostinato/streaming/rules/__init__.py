"""Rules for streams, one file per family of operators. The import registers all of them.

An operator with an axis map and without a rule of its own treats each frame for itself.
"""

from ostinato.graph.facts import FACTS
from ostinato.graph.rules import load_rules
from ostinato.streaming.registry import RULES, streams
from ostinato.streaming.rules.frames import each_frame

load_rules(__name__, __path__)
streams(*(name for name, facts in FACTS.items() if facts.axes and name not in RULES))(each_frame)
