"""Word lists for the generators: common words of every sort, and words of one kind each."""

from pathlib import Path

WORDS_FILE = Path(__file__).parent / "bundled" / "words.txt"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def common_words() -> tuple[str, ...]:
    """The bundled list of common lower-case words, each once."""
    lines = WORDS_FILE.read_text(encoding="utf-8").splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in _words(line))


# A word that could be of both kinds of a task ("clean", "salmon", "kiwi", "crane") is in neither list.
KINDS: dict[str, tuple[str, ...]] = {
    "adjective": _words(
        "afraid angry anxious awful beautiful bitter brilliant broad careful careless cautious cheap cheerful clever "
        "clumsy cruel curious dangerous delicate delicious dreadful eager easy elegant enormous expensive famous "
        "foolish fragile friendly generous gentle gigantic glad gloomy graceful grateful greedy happy harmless heavy "
        "helpful honest huge hungry ignorant important impossible innocent intelligent jealous lazy lonely loud "
        "lovely loyal lucky magnificent mighty modern nasty nervous noisy obvious odd old patient peaceful pleasant "
        "polite poor popular powerful pretty proud rare rich ridiculous rude sad selfish silent silly simple soft "
        "strange strict strong stubborn stupid tall terrible thirsty thoughtful tiny ugly unhappy useful useless "
        "vague valuable weak wicked wild wise wonderful wooden young"
    ),
    "verb": _words(
        "accept admire admit agree allow announce appear apply arrange arrive ask assist attend avoid become begin "
        "behave believe belong borrow bring build bury carry celebrate choose collect compare complain confess "
        "connect contain continue cook create decide defend deny describe destroy disappear discover discuss eat "
        "encourage enjoy enter examine exist expect explain explore fail forbid forget forgive gather give grow "
        "happen hear hesitate imagine improve include inform insist invent invite join kneel know learn leave listen "
        "locate lose marry measure mention obey observe obtain occur offer pray predict prefer prepare pretend "
        "prevent produce protect prove provide punish receive recommend refuse remain remember remove repair repeat "
        "require rescue say scream see seem sell send sing sit solve speak steal suffer suggest swim teach tell think "
        "throw translate try understand visit weep whisper wipe write yell"
    ),
    "animal": _words(
        "alligator ant badger beaver bee beetle bison buffalo butterfly cat caterpillar cheetah chimpanzee cockroach "
        "cow coyote cricket crocodile crow deer dog dolphin donkey duck eagle eel elephant falcon ferret flamingo fox "
        "frog gazelle giraffe goat goose gorilla grasshopper hamster hedgehog hippopotamus horse hyena iguana "
        "jellyfish kangaroo koala ladybug leopard lion lizard lobster lynx monkey mosquito moth octopus ostrich otter "
        "owl panda panther parrot peacock pelican penguin pheasant pig pigeon porcupine rabbit raccoon rat reindeer "
        "rhinoceros rooster scorpion shark sheep skunk sloth snail snake sparrow spider squid squirrel swan tiger "
        "toad tortoise turkey turtle vulture walrus weasel whale wolf woodpecker yak zebra"
    ),
    "object": _words(
        "anchor armchair backpack balloon barrel basket bathtub bed bench bicycle blanket book bottle bowl box broom "
        "brush bucket button calendar camera candle carpet chair clock coat coin computer cup curtain cushion desk "
        "dish door drawer drum envelope fork fridge glove guitar hammer hat helmet jacket jar kettle key keyboard "
        "knife ladder lamp lantern magnet map mirror mug necklace needle newspaper notebook oven paintbrush pan "
        "pencil piano pillow plate postcard printer radio razor rope ruler scarf scissors screwdriver shelf shirt "
        "shoe shovel skateboard soap sock sofa spoon suitcase sweater table teapot telephone telescope television "
        "ticket toaster toothbrush towel trumpet umbrella vase violin wallet wheel whistle wrench"
    ),
    "color": _words(
        "beige black blue brown crimson cyan gray green indigo khaki lavender lilac magenta maroon mauve navy orange "
        "pink purple red scarlet tan turquoise violet white yellow"
    ),
    "fruit": _words(
        "apple apricot avocado banana blackberry blueberry cantaloupe cherry coconut cranberry fig gooseberry grape "
        "grapefruit guava kumquat lemon lime lychee mandarin mango melon mulberry nectarine orange papaya "
        "passionfruit peach pear persimmon pineapple plum pomegranate quince raspberry strawberry tangerine "
        "watermelon"
    ),
}
"""Words of one kind each, by kind."""
