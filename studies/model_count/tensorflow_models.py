"""Models of TensorFlow and Keras: ``python tensorflow_models.py PACKAGES NAME FOLDER``, where TensorFlow is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def mobile_net(folder: Path) -> None:
    from keras import applications

    _saved(applications.MobileNetV3Small(input_shape=(32, 32, 3), weights=None, classes=5, alpha=0.35), folder)


def text_filters(folder: Path) -> None:
    from keras import Sequential, layers

    _saved(Sequential([layers.Input((20,), dtype="int32", name="ids"), layers.Embedding(60, 16),
                       layers.SeparableConv1D(16, 3, activation="relu"), layers.GlobalMaxPooling1D(),
                       layers.Dense(3, activation="softmax")]), folder)


def moving_images(folder: Path) -> None:
    from keras import Sequential, layers

    _saved(Sequential([layers.Input((4, 12, 12, 1), name="frames"),
                       layers.ConvLSTM2D(4, 3, padding="same", return_sequences=False), layers.Flatten(),
                       layers.Dense(2)]), folder)


def both_ways(folder: Path) -> None:
    from keras import Sequential, layers

    _saved(Sequential([layers.Input((10, 5), name="readings"), layers.Bidirectional(layers.GRU(8)),
                       layers.UnitNormalization(), layers.Dense(5)]), folder)


def nas_net(folder: Path) -> None:
    from keras import applications

    _exported(applications.NASNetMobile(input_shape=(32, 32, 3), weights=None, classes=4), folder)


def volume(folder: Path) -> None:
    from keras import Sequential, layers

    _exported(Sequential([layers.Input((8, 8, 8, 1), name="scan"), layers.Conv3D(4, 3, padding="same"),
                          layers.SpatialDropout3D(0.2), layers.MaxPooling3D(),
                          layers.Conv3DTranspose(2, 2, strides=2)]),
              folder)


def keywords(folder: Path) -> None:
    """The spectrum of a sound within the model."""
    import tensorflow as tf

    weight = tf.Variable(tf.random.normal([129, 6]))
    _signed(lambda sound: {"words": tf.matmul(tf.reduce_mean(tf.abs(tf.signal.stft(sound, 256, 128)), 1), weight)},
            {"weight": weight}, folder, sound=tf.TensorSpec([None, 2048], tf.float32))


def ranked(folder: Path) -> None:
    """The five items of the largest products, by number and score."""
    import tensorflow as tf

    items = tf.Variable(tf.random.normal([40, 8]))

    def best(user: Any) -> dict[str, Any]:
        scores, places = tf.math.top_k(tf.matmul(tf.math.l2_normalize(user, -1), items, transpose_b=True), k=5)
        return {"scores": scores, "items": places}

    _signed(best, {"items": items}, folder, user=tf.TensorSpec([None, 8], tf.float32))


def _saved(model: Any, folder: Path) -> None:
    _asked(model)
    model.save(folder / "m.keras")


def _exported(model: Any, folder: Path) -> None:
    _asked(model)
    model.export(folder / "m")


def _asked(model: Any) -> None:
    import numpy as np

    model.predict(np.ones((2, *model.input_shape[1:])), verbose=0)


def _signed(run: Callable[..., Any], kept: dict[str, Any], folder: Path, **inputs: Any) -> None:
    import tensorflow as tf

    module = tf.Module()
    for name, value in kept.items():
        setattr(module, name, value)
    module.serve = tf.function(run, input_signature=list(inputs.values()))
    module.serve(*(tf.ones([size or 2 for size in spec.shape]) for spec in inputs.values()))
    tf.saved_model.save(module, str(folder / "m"), signatures=module.serve.get_concrete_function())


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import keras

    keras.utils.set_random_seed(7)
    globals()[sys.argv[2]](Path(sys.argv[3]))
