"""What other libraries call our settings and options: Stable-Baselines3, CleanRL, RLlib, Sample Factory, Tianshou."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.errors import nearest


def _words(table: dict[str, str]) -> dict[str, list[str]]:
    return {ours: theirs.split() for ours, theirs in table.items()}


SETTINGS = _words(
    {
        "learning_rate": "lr q_lr policy_lr actor_lr critic_lr value_lr pi_lr vf_lr step_size",
        "gamma": "discount discount_factor",
        "num_envs": "n_envs num_env num_envs_per_worker num_envs_per_env_runner training_num",
        "hidden": "net_arch policy_kwargs hidden_sizes hidden_size hidden_dims hidden_layer_sizes "
        "fcnet_hiddens encoder_mlp_layers layers",
        "activation": "activation_fn nonlinearity fcnet_activation",
        "network": "model custom_model policy_class features_extractor_class",
        "batch_size": "train_batch_size train_batch_size_per_learner minibatch_size",
        "replay_capacity": "buffer_size replay_size replay_buffer_size memory_size capacity replay_buffer_capacity",
        "samples_per_insert": "train_freq train_frequency gradient_steps utd utd_ratio replay_ratio training_intensity "
        "update_per_step",
        "warmup": "learning_starts start_steps start_timesteps num_steps_sampled_before_learning_starts "
        "init_steps warmup_steps",
        "n_step": "n_steps nstep estimation_step num_steps",
        "horizon": "n_steps num_steps rollout rollout_length unroll_length rollout_fragment_length nsteps",
        "epochs": "n_epochs update_epochs num_epochs num_sgd_iter ppo_epoch repeat_per_collect",
        "minibatch_size": "batch_size num_minibatches n_minibatches sgd_minibatch_size mini_batch_size",
        "gae_lambda": "lam lambda lambda_ gae_lam",
        "clip_range": "clip_coef clip_param clip_ratio eps_clip ppo_clip_ratio clip_eps",
        "ent_coef": "entropy_coef entropy_coeff entropy_cost exploration_loss_coeff entropy_weight",
        "initial_alpha": "ent_coef alpha initial_temperature init_alpha entropy_coef entropy_coeff",
        "target_entropy_scale": "target_entropy",
        "max_grad_norm": "grad_clip grad_norm max_gradient_norm gradient_clip clip_grad_norm",
        "normalise_obs": "normalize_obs norm_obs normalize_observations normalize_input normalize",
        "normalise_reward": "normalize_reward norm_reward normalize_returns normalize_rewards",
        "normalise_advantage": "normalize_advantage norm_adv standardize_advantage",
        "tau": "polyak target_update_interval target_network_frequency target_update_freq soft_update_tau",
        "policy_delay": "policy_frequency actor_update_freq update_actor_freq policy_freq",
        "exploration_noise": "action_noise act_noise expl_noise action_sigma",
        "target_noise": "target_policy_noise policy_noise",
        "target_noise_clip": "noise_clip",
        "exploration": "exploration_initial_eps exploration_final_eps exploration_fraction epsilon "
        "epsilon_timesteps start_e end_e eps_start eps_end eps_decay initial_epsilon final_epsilon",
        "double": "double_q double_dqn is_double",
        "rho_bar": "vtrace_clip_rho_threshold vtrace_rho",
        "c_bar": "vtrace_clip_c_threshold vtrace_c",
    }
)
"""Ours, and what is asked for where ours is meant. Some mean two of ours: the one that the algorithm has is named."""

OPTIONS = _words(
    {
        "steps": "total_timesteps timesteps num_timesteps n_timesteps timesteps_total total_steps "
        "total_env_steps train_for_env_steps max_steps max_env_steps env_steps frames num_frames",
        "seconds": "train_for_seconds time_total_s max_time time_limit max_seconds time_budget_s",
        "until": "stop_reward reward_threshold target_reward episode_reward_mean",
        "seed": "random_seed random_state",
        "replicas": "num_workers n_workers num_env_runners num_rollout_workers num_actors",
        "out": "tensorboard_log log_dir logdir log_path save_path train_dir storage_path output_dir "
        "exp_name experiment run_name",
        "resume": "checkpoint checkpoint_path trained_agent restore load",
        "eval_every": "eval_freq evaluation_interval eval_interval eval_frequency",
        "eval_episodes": "n_eval_episodes evaluation_duration num_eval_episodes episode_per_test",
        "checkpoint_every": "save_freq checkpoint_freq checkpoint_frequency save_every_sec save_interval",
        "record_every": "capture_video record_video save_video video_interval video_freq",
        "view": "render render_mode",
        "runtime": "vec_env_cls vec_env_class serial_mode",
    }
)
"""The same of options of `train`."""


def of_setting(name: str, known: Collection[str], meaning: Mapping[str, str]) -> str:
    """The end of a sentence that refuses a setting: what it is called here, or the nearest name.

    `meaning` says what our settings do, because theirs may differ a little.
    """
    plain = _plain(name)
    for ours in known:
        if plain == ours or plain in SETTINGS.get(ours, ()):
            says = meaning.get(ours, "").rstrip(".")
            return f"; it is called '{ours}' here" + (f": {says}" if says else "")
    for ours, theirs in OPTIONS.items():
        if plain == ours or plain in theirs:
            return f"; it is an option of train: --{ours.replace('_', '-')} ({ours}= in Python)"
    return nearest(name, known)


def of_option(name: str, known: Collection[str]) -> str:
    """The end of a sentence that refuses an option: what it is called here, or that it is a setting."""
    plain = _plain(name)
    for ours in known:
        if plain == ours or plain in OPTIONS.get(ours, ()):
            return f"; it is called '{ours}' here"
    meant = [ours for ours, theirs in SETTINGS.items() if plain == ours or plain in theirs]
    if meant:
        first = plain if plain in meant else meant[0]
        if first in known:  # the settings of the algorithm are options, too
            return f"; it is called '{first}' here"
        others = f" (or {', '.join(meant[1:])})" if first != plain and meant[1:] else ""
        return f"; it is a setting of the algorithm: --set {first}=...{others}, or {first}= where its class is called"
    return nearest(name, known)


def _plain(name: str) -> str:
    """A name without the ways of writing that differ: --Total-Timesteps is total_timesteps."""
    return name.strip("-").replace("-", "_").lower()
