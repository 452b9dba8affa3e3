# frozen_string_literal: true

module Bench
  # Figures about figures.
  module Statistics
    # The shares at which a distribution is drawn: dense where it is interesting, which is at its end.
    SHARES = [0, 0.01, 0.05, *(1..9).map { |tenth| tenth / 10.0 }, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.993, 0.995,
              0.997, 0.998, 0.999, 0.9995, 1].freeze

    module_function

    # The standard deviation in parts of the mean; nil of a single value.
    def variation(values)
      return if values.size < 2

      mean = values.sum.fdiv(values.size)
      return 0.0 if mean.zero?

      Math.sqrt(values.sum { |value| (value - mean)**2 } / (values.size - 1)) / mean
    end

    # [share, value] pairs of sorted values.
    def curve(sorted)
      SHARES.map { |share| [share, sorted[((sorted.size - 1) * share).round].to_f.round(2)] }
    end

    # The middle one of several curves, share by share.
    def middle_curve(curves) = curves.transpose.map { |points| [points.first.first, Bench.median(points.map(&:last))] }
  end
end
